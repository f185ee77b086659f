"""Rows on their way: what ``ShardedEmbeddings.start`` returns, and the pooling that autograd goes back through.

Shape legend: ``B`` samples, ``T`` tables, ``D`` dimensions, ``R`` answered rows.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from laconic import kernels
from laconic.errors import PlanError
from laconic.exchange import Layout
from laconic.exchange.pipeline import Fetched
from laconic.exchange.routing import Bags
from laconic.exchange.worker import RefusedBatchError

__all__ = ["Pending"]


class Batch(Protocol):
    """What pooling needs to know of a batch that has been routed."""

    @property
    def samples(self) -> int: ...

    @property
    def global_samples(self) -> int: ...

    @property
    def bags(self) -> Bags: ...


class Embeddings(Protocol):
    """Those whose rows are on their way."""

    dim: int
    layout: Layout
    anchor: Tensor
    """Of no elements, but wants a gradient: autograd visits a function only if one of its inputs does."""

    def begin_update(self, pending: Pending, gradient_RD: Tensor) -> None: ...

    def forget(self, pending: Pending) -> None: ...


class Pending:
    """Rows on their way."""

    def __init__(self, embeddings: Embeddings, fetched: Fetched) -> None:
        self.fetched = fetched
        self._embeddings = embeddings
        self._waited = self._forgotten = self._updated = False

    @property
    def step(self) -> int:
        """Training steps that were begun before."""
        return self.fetched.step

    @property
    def global_samples(self) -> int:
        """Samples of all ranks in this batch; divide a sum of losses by it."""
        return self.batch.global_samples

    @property
    def batch(self) -> Batch:
        """The routed batch; waits for its ids."""
        try:
            batch: Batch = self.fetched.routed.result()
        except RefusedBatchError:
            if self.fetched.manner.updates and not self._forgotten:
                self._forgotten = True
                self._embeddings.forget(self)
            raise
        return batch

    def wait(self) -> Tensor:
        """Return pooled embeddings, B x T x D; ``backward`` through them updates the tables."""
        if self._waited:
            raise PlanError("embeddings: rows were waited for before; keep what wait() returned")
        batch = self.batch  # raises if it was refused, and has no rows
        received_RD = self.fetched.received.result()
        self._waited = True
        if self.fetched.manner.updates:
            return _Pool.apply(self._embeddings.anchor, self, received_RD, batch.bags.weights)  # type: ignore[no-any-return, no-untyped-call]
        return self._pool(batch, received_RD)

    def _pool(self, batch: Batch, received_RD: Tensor) -> Tensor:
        bags, tables = batch.bags, len(self._embeddings.layout.tables)
        out = torch.empty(batch.samples * tables, self._embeddings.dim, dtype=received_RD.dtype)
        rows, index = received_RD.numpy(), bags.index
        if bags.weights is not None:
            rows, index = rows[index] * _column(bags.weights, rows.dtype), np.arange(len(index))
        kernels.active().sum_bags(out.numpy(), rows, index, bags.offsets)
        if bags.offsets is None:
            out_BTD = out.view(batch.samples, tables, out.shape[1])
        else:
            out_BTD = out.view(tables, batch.samples, out.shape[1]).transpose(0, 1)
        return out_BTD if bags.scale_TB is None else out_BTD * self._scale(bags.scale_TB, out.dtype)

    def _unpool(self, gradient_BTD: Tensor, rows: int) -> Tensor:
        bags = self.batch.bags
        if bags.scale_TB is not None:
            gradient_BTD = gradient_BTD * self._scale(bags.scale_TB, gradient_BTD.dtype)
        if bags.offsets is None:
            source, source_index = gradient_BTD.contiguous(), None
        else:
            source = gradient_BTD.transpose(0, 1).contiguous()
            lengths = torch.from_numpy(bags.offsets).diff()
            source_index = torch.repeat_interleave(lengths).numpy()
        gradient_RD = torch.zeros(rows, self._embeddings.dim, dtype=gradient_BTD.dtype)
        source_rows = source.view(-1, self._embeddings.dim).numpy()
        if bags.weights is not None:
            source_rows = source_rows if source_index is None else source_rows[source_index]
            source_rows, source_index = source_rows * _column(bags.weights, source_rows.dtype), None
        kernels.active().add_rows(gradient_RD.numpy(), bags.index, source_rows, source_index)
        return gradient_RD

    def _weight_gradient(self, gradient_BTD: Tensor, received_RD: Tensor) -> Tensor:
        """Gradient of each lookup's weight: the product of its row and the gradient of its bag."""
        bags = self.batch.bags
        assert bags.weights is not None, "only weighted bags have gradients of weights"
        if bags.offsets is None:
            bag_LD = gradient_BTD.reshape(-1, self._embeddings.dim)
        else:
            lengths = torch.from_numpy(bags.offsets).diff()
            of_L = torch.repeat_interleave(lengths)
            bag_LD = gradient_BTD.transpose(0, 1).reshape(-1, self._embeddings.dim)[of_L]
        rows_LD = received_RD[torch.from_numpy(bags.index)]
        return (rows_LD * bag_LD).sum(1).to(bags.weights.dtype)

    @staticmethod
    def _scale(scale_TB: Any, dtype: torch.dtype) -> Tensor:
        return torch.from_numpy(scale_TB).to(dtype).t()[..., None]


class _Pool(torch.autograd.Function):
    """Pooling whose backward hands the rows' gradients to the exchange, and returns before they are sent."""

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, pending: Pending, received_RD: Tensor, weights: Tensor | None
    ) -> Tensor:
        ctx.pending, ctx.rows, ctx.anchor = pending, len(received_RD), anchor
        ctx.received = received_RD if weights is not None and weights.requires_grad else None
        return pending._pool(pending.batch, received_RD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        pending: Pending = ctx.pending
        if pending._updated:
            raise PlanError(
                "embeddings: expected one backward for a batch, got another, and its rows have changed since; "
                "call backward once, on the sum of all losses"
            )
        pending._updated = True
        of_weights = None if ctx.received is None else pending._weight_gradient(gradients[0], ctx.received)
        pending._embeddings.begin_update(pending, pending._unpool(gradients[0], ctx.rows))
        return torch.zeros_like(ctx.anchor), None, None, of_weights


def _column(weights: Tensor, dtype: Any) -> Any:
    return weights.detach().numpy().astype(dtype)[:, None]
