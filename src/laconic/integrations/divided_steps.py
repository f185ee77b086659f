"""Adagrad and Adam with gradients whose small entries wait: what travels is divided before.

These optimizers divide a gradient by the root of the squares that they have seen. Where a sum of
``k`` gradients arrives at once, they see a large gradient, and move a weight by a ``sqrt(k)``-th of
what ``k`` steps would. So large entries are chosen, sent and held back as *steps*::

    u = g / (sqrt(V + ranks * own) + eps)     what a rank's gradient would move, but for the rate
    own += g * g                              squares that other ranks do not know yet
    U = sum of what ranks send of memory + u
    G = U * (sqrt(V) + eps)                   what the model's gradient becomes

``V`` is the optimizer's own state. Every rank has the same, because it grows only by what ranks
agree on: every so many steps they add up ``own``. The optimizer would add ``G * G`` to it, which is
no square of any gradient, so for the length of its step this is taken off before. What it computes
is then ``lr * U``, and its state goes into checkpoints as ever: a run may go on without this.

Adam averages where Adagrad adds; its first moment is an average of ``G``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.errors import ConfigError

__all__ = ["DividedSteps"]

Floats = NDArray[np.float32]

_LEAST_STEPS = 32
"""Steps that an optimizer must have taken: squares of fewer gradients say too little."""

_MOST = 256.0
"""Largest step, in learning rates. Beyond, float32 cannot take its square off and put it back."""

_SLACK = 2.0**-20
"""Share of a square that stays, so that rounding never leaves less than nothing under the root."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """Where an optimizer keeps squares, and how they grow."""

    squares: str
    """Name of the squares in its state."""
    keeps: float
    """What it multiplies them by in each step."""
    takes: float
    """What it multiplies a new square by."""
    eps: float


class DividedSteps:
    """Knows what an optimizer divides by, and lets it take steps that are divided already."""

    def __init__(self, optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> None:
        """``names``: names of the parameters whose steps will be divided, by their identity."""
        self._optimizer = optimizer
        self._rules = {
            id(parameter): _rule_of(optimizer, group)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if id(parameter) in names
        }
        missing = [name for identity, name in names.items() if identity not in self._rules]
        if missing:
            raise ConfigError(
                f"register_ddp: optimizer: expected one that updates {missing[0]!r}, which this one does not "
                "know; pass the optimizer of the whole model, or exclude the parameter"
            )
        self._ready: set[int] = set()
        self._marked: dict[int, Tensor] = {}
        """Parameters whose next gradient is a step that is divided already, by their identity; of
        two threads, each has parameters of its own."""
        self._kept: dict[Tensor, Tensor] = {}
        self._hooks = (
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
        )

    def ready(self, parameters: Iterable[Tensor]) -> bool:
        """Whether the optimizer has seen enough gradients of all of these; all ranks agree."""
        for parameter in parameters:
            if id(parameter) not in self._ready:
                state = self._optimizer.state.get(parameter)
                if not state or float(state["step"]) < _LEAST_STEPS:
                    return False
                self._ready.add(id(parameter))
        return True

    def divide(self, x: Floats, own: Floats, parameters: Sequence[Tensor], ranks: int, scale: float) -> None:
        """Make steps of gradients, in place, and count their squares in ``own``.

        ``scale``: what the sum of all ranks is divided by afterwards.
        """
        for part, mine, parameter in _each(parameters, x, own):
            rule = self._rules[id(parameter)]
            with np.errstate(all="ignore"):  # NaN and infinities travel as they are
                mine *= np.float32(rule.keeps)  # noqa: PLW2901 -- in place
                mine += np.float32(rule.takes / scale**2) * part * part  # noqa: PLW2901
                known = self._squares(parameter, rule) + ranks * mine
                part /= scale * self._root(known, parameter, rule)  # noqa: PLW2901

    def agree(self, total: Floats, parameters: Sequence[Tensor]) -> None:
        """Take squares that all ranks have added up, of which ``own`` was a part, into ``V``."""
        for new, parameter in _each(parameters, total):
            rule = self._rules[id(parameter)]
            known = self._optimizer.state[parameter][rule.squares].view(-1)
            known.add_(torch.from_numpy(new), alpha=1 / rule.keeps)

    def restore(self, x: Floats, parameters: Sequence[Tensor], scale: float) -> None:
        """Make gradients of summed steps, in place, and know them when the optimizer takes them."""
        for part, parameter in _each(parameters, x):
            rule = self._rules[id(parameter)]
            np.clip(part, -_MOST, _MOST, out=part)  # NaN stays
            part *= scale * self._root(self._squares(parameter, rule), parameter, rule)  # noqa: PLW2901
            self._marked[id(parameter)] = parameter

    def forget(self, parameters: Sequence[Tensor]) -> None:
        """Let the optimizer take the next gradients of these as it would without this."""
        for parameter in parameters:
            self._marked.pop(id(parameter), None)

    def close(self) -> None:
        """Leave the optimizer as it was; again, it does nothing."""
        for hook in self._hooks:
            hook.remove()

    def _squares(self, parameter: Tensor, rule: _Rule) -> Floats:
        """Return squares as they will be after the step, but for those of its gradient."""
        found: Floats = self._optimizer.state[parameter][rule.squares].detach().view(-1).numpy()
        return found if rule.keeps == 1 else found * np.float32(rule.keeps)

    def _root(self, squares: Floats, parameter: Tensor, rule: _Rule) -> Floats:
        """Return what the optimizer divides by; an average over few steps is taken for that."""
        share = 1.0
        if rule.keeps < 1:
            share = 1 - rule.keeps ** (float(self._optimizer.state[parameter]["step"]) + 1)
        root: Floats = np.sqrt(squares / np.float32(share))
        root += np.float32(rule.eps)
        return root

    def _before(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Take off what the optimizer is about to add to its squares."""
        for parameter in self._marked.values():
            rule, squares = self._rules[id(parameter)], optimizer.state[parameter]
            if parameter.grad is None:
                continue
            after = squares[rule.squares] * rule.keeps
            self._kept[parameter] = after
            taken_off = -rule.takes * (1 - _SLACK)
            before = after.addcmul(parameter.grad, parameter.grad, value=taken_off)
            squares[rule.squares].copy_(before.div_(rule.keeps))
        self._marked.clear()

    def _after(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Leave no rounding of that behind."""
        for parameter, after in self._kept.items():
            optimizer.state[parameter][self._rules[id(parameter)].squares].copy_(after)
        self._kept.clear()


def _each(parameters: Sequence[Tensor], *flat: Floats) -> Iterable[tuple[Any, ...]]:
    """Cut arrays that lie side by side into those of each parameter."""
    at = 0
    for parameter in parameters:
        end = at + parameter.numel()
        yield *(x[at:end] for x in flat), parameter
        at = end


def _rule_of(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> _Rule:
    """Return how an optimizer divides; ``ConfigError`` if it is none that is known."""
    kind = type(optimizer).__name__
    if isinstance(optimizer, torch.optim.Adagrad):
        rule = _Rule("sum", 1.0, 1.0, group["eps"])
    elif isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW) and not group["amsgrad"]:
        beta = group["betas"][1]
        rule = _Rule("exp_avg_sq", beta, 1 - beta, group["eps"])
    else:
        kind += " with amsgrad" if group.get("amsgrad") else ""
        raise ConfigError(
            f"register_ddp: optimizer: expected Adagrad, Adam or AdamW, got {kind}; SGD needs none, and others "
            "cannot be divided before"
        )
    decoupled = isinstance(optimizer, torch.optim.AdamW) or group.get("decoupled_weight_decay", False)
    if group["weight_decay"] and not decoupled:
        raise ConfigError(
            f"register_ddp: optimizer: expected weight_decay=0, got {group['weight_decay']!r}: {kind} adds it to "
            "gradients that are divided already; use AdamW, or leave it out"
        )
    return rule
