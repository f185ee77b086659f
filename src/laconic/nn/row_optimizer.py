"""The optimizer of sharded rows as torch knows optimizers, with ``step`` and ``param_groups``.

Rows are updated where they are, by the exchange. This is what a training loop, a scheduler or a
checkpoint takes for their optimizer; its only hyperparameter is the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from laconic.errors import ConfigError, PlanError
from laconic.exchange.engine import RowEngine
from laconic.exchange.tables.optimizer import RowOptimizer

__all__ = ["EmbeddingOptimizer"]


class EmbeddingOptimizer(torch.optim.Optimizer):
    """What ``ShardedEmbeddings.optimizer`` is; schedulers of torch take it.

    The learning rate of ``param_groups`` counts from the next ``backward`` on where updates are
    fused with it, from the next ``step`` on otherwise. Every rank must set the same.
    """

    def __init__(self, kind: RowOptimizer, engines: Sequence[RowEngine], fused: bool) -> None:
        self._kind, self._engines = kind, engines
        self.fused = fused
        """Whether ``backward`` updates rows; else gradients wait for ``step``."""
        self.anchor = torch.zeros(0, requires_grad=True)
        """A tensor of no elements that stands for the rows, which are no parameters of torch."""
        super().__init__([self.anchor], {"lr": kind.lr})

    @property
    def lr(self) -> float:
        """Learning rate that the next update uses; ``ConfigError`` if rows cannot use it."""
        lr = float(self.param_groups[0]["lr"])
        if not 0 <= lr < math.inf:
            raise ConfigError(
                f"embeddings.optimizer: expected a finite learning rate of at least 0, got {lr!r}; set "
                "param_groups[0]['lr'], or look at what the scheduler made of it"
            )
        return lr

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update rows by the gradients that wait; where ``backward`` did, wait for that to end."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for engine in self._engines:
            if self.fused:
                engine.pipeline.finish()
            else:
                engine.pipeline.apply(self.lr)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients that wait, if there are any; every rank alike."""
        if not self.fused:
            for engine in self._engines:
                engine.pipeline.drop_held()

    def clip_grad_norm_(
        self,
        max_norm: float,
        parameters: Tensor | Iterable[Tensor] = (),
        *,
        error_if_nonfinite: bool = False,
    ) -> Tensor:
        """Scale gradients so that their norm is at most this: rows of all ranks and ``parameters``.

        Call it between ``backward`` and the steps of both optimizers, on every rank; ``parameters``
        are those of the dense model, whose gradients are the same on all ranks. Returns the norm
        before. Only gradients that wait for their step can be scaled: ``fused=False``. A norm that
        is not finite spoils all gradients, as with torch's own; ``error_if_nonfinite`` raises
        ``PlanError`` instead.
        """
        if self.fused:
            raise ConfigError(
                "embeddings: clip_grad_norm_ needs gradients that wait for optimizer.step(), but backward "
                "updates these rows; make them with fused=False"
            )
        if not max_norm >= 0:
            raise ConfigError(
                f"embeddings.clip_grad_norm_: expected max_norm of at least 0, got {max_norm!r}"
            )
        several = [parameters] if isinstance(parameters, Tensor) else parameters
        grads = [parameter.grad for parameter in several if parameter.grad is not None]
        dense = sum(float(grad.detach().double().square().sum()) for grad in grads)
        norm = math.sqrt(dense + sum(engine.pipeline.held_square() for engine in self._engines))
        if error_if_nonfinite and not math.isfinite(norm):
            raise PlanError(
                f"embeddings.clip_grad_norm_: expected gradients with a finite norm, got {norm}; look at the loss, "
                "or leave error_if_nonfinite out"
            )
        factor = max_norm / (norm + 1e-6)  # as torch's own
        if not factor >= 1:  # NaN, too, as there
            for engine in self._engines:
                engine.pipeline.scale_held(factor)
            for grad in grads:
                grad.detach().mul_(factor)
        return torch.tensor(norm)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse groups besides that of the rows: this optimizer updates nothing else."""
        if self.param_groups:
            raise ConfigError(
                "embeddings.optimizer: expected no parameters besides its rows, got another group; give it to "
                "the optimizer of the dense model"
            )
        super().add_param_group(param_group)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Refuse: a copy would have no rows to update."""
        raise ConfigError(
            "embeddings.optimizer: expected to be copied with its embeddings, got deepcopy of it alone; copy the "
            "embeddings, whose copy has an optimizer, or use state_dict()"
        )

    def __repr__(self) -> str:
        lr = self.param_groups[0]["lr"]
        return f"EmbeddingOptimizer({type(self._kind).__name__}, lr={lr}, fused={self.fused})"
