"""The optimizer of sharded rows as torch knows optimizers, with ``step`` and ``param_groups``.

Rows are updated where they are, by the exchange. This is what a training loop, a scheduler or a
checkpoint takes for their optimizer; its only hyperparameter is the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.exchange.engine import RowEngine
from laconic.exchange.tables.optimizer import RowOptimizer

__all__ = ["EmbeddingOptimizer"]


class EmbeddingOptimizer(torch.optim.Optimizer):
    """What ``ShardedEmbeddings.optimizer`` is; schedulers of torch take it.

    The learning rate of ``param_groups`` counts from the next ``backward`` on where updates are
    fused with it, from the next ``step`` on otherwise. Every rank must set the same.
    """

    def __init__(self, kind: RowOptimizer, engines: Sequence[RowEngine], fused: bool) -> None:
        self._kind, self._engines, self._fused, self._scale = kind, engines, fused, 1.0
        self.anchor = torch.zeros(0, requires_grad=True)
        """A tensor of no elements that stands for the rows, which are no parameters of torch."""
        super().__init__([self.anchor], {"lr": kind.lr})

    @property
    def lr(self) -> float:
        """Learning rate that the next update uses."""
        return float(self.param_groups[0]["lr"])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update rows by the gradients that wait; where ``backward`` did, wait for that to end."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for engine in self._engines:
            if self._fused:
                engine.pipeline.finish()
            else:
                engine.pipeline.apply(self.lr, self._scale)
        self._scale = 1.0
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients that wait, if there are any; every rank alike."""
        if not self._fused:
            for engine in self._engines:
                engine.pipeline.drop_held()
        self._scale = 1.0

    def clip_grad_norm_(self, max_norm: float, parameters: Iterable[Tensor] = ()) -> Tensor:
        """Scale gradients so that their norm is at most this: rows of all ranks and ``parameters``.

        Call it between ``backward`` and the steps of both optimizers, on every rank; ``parameters``
        are those of the dense model, whose gradients are the same on all ranks. Returns the norm
        before. Only gradients that wait for their step can be scaled: ``fused=False``.
        """
        if self._fused:
            raise ConfigError(
                "embeddings: clip_grad_norm_ needs gradients that wait for optimizer.step(), but backward "
                "updates these rows; make them with fused=False"
            )
        grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
        dense = sum(float(grad.detach().double().square().sum()) for grad in grads)
        rows = sum(engine.pipeline.held_square() for engine in self._engines)
        norm = math.sqrt(dense + self._scale**2 * rows)
        factor = max_norm / (norm + 1e-6)  # as torch's own
        if factor < 1:
            self._scale *= factor
            for grad in grads:
                grad.detach().mul_(factor)
        return torch.tensor(norm)

    def __repr__(self) -> str:
        return f"EmbeddingOptimizer({type(self._kind).__name__}, lr={self.lr}, fused={self._fused})"
