"""How rows that a rank received become the bags of its samples, and bags' gradients those of rows.

Shape legend: ``B`` samples, ``T`` tables, ``D`` dimensions, ``R`` received rows, ``L`` lookups, or
answers of owners that pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic import kernels
from laconic.errors import ConfigError
from laconic.exchange.ranks.transport import bounds_of
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.table import Table

__all__ = ["Bags"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bags:
    """Bag k of the output is the sum of rows ``index[offsets[k]:offsets[k+1]]`` of those received.

    Without offsets there is one row for each bag, and bags lie sample by sample. With offsets they
    lie table by table.
    """

    index: Ints
    offsets: Ints | None
    scale_TB: NDArray[np.float64] | None
    """1 / ids of each bag where the mean is wanted."""
    weights: Tensor | None = None
    """What each of these rows is multiplied with before the sum; None: 1."""

    @classmethod
    def of(
        cls, layout: Layout, tables: Sequence[Table], offsets: Ints, position_L: Ints, start_NT: Ints
    ) -> Bags:
        """Find how bags of these tables, the first of the layout, are made of answers.

        ``position_L`` says which answer each lookup is, ``start_NT`` where answers of each rank and
        table begin.
        """
        lengths = np.diff(offsets)
        samples, pooled_T = len(lengths) // len(tables), layout.pooled_T[: len(tables)]
        scale_TB = _scale(tables, lengths.reshape(len(tables), samples))
        single = not (layout.split_T[: len(tables)] & pooled_T).any() or layout.ranks == 1
        if single and pooled_T.all():
            start_T = start_NT[layout.first_T[: len(tables)], np.arange(len(tables))]
            index_BT = start_T + np.arange(samples)[:, None]
            return cls(index_BT.ravel(), None, scale_TB)
        if not pooled_T.any():
            if (lengths == 1).all():
                index_BT = position_L.reshape(len(tables), samples).T
                return cls(np.ascontiguousarray(index_BT).ravel(), None, None)
            return cls(position_L, offsets, scale_TB)
        # some tables of both kinds, or partial sums: table by table
        index: list[Ints] = []
        sizes: list[Ints] = []
        for t in range(len(tables)):
            if not pooled_T[t]:
                index.append(position_L[offsets[t * samples] : offsets[(t + 1) * samples]])
                sizes.append(lengths[t * samples : (t + 1) * samples])
                continue
            owners = [rank for rank in range(layout.ranks) if layout.holds(rank)[t]]
            index.append((start_NT[owners, t] + np.arange(samples)[:, None]).ravel())
            sizes.append(np.full(samples, len(owners)))
        return cls(np.concatenate(index), bounds_of(np.concatenate(sizes)), scale_TB)

    def weighted(self, weights_L: Tensor, tables: Sequence[Table]) -> Bags:
        """Let rows count by the weights of their lookups.

        ``ConfigError`` where somebody else sums them, or their mean is wanted.
        """
        for table in tables:
            if table.send == "pooled":
                raise ConfigError(
                    f"lookups: weights, but table {table.name!r} is pooled by the owner of its rows, who does "
                    "not get them; make it with send = 'rows'"
                )
            if table.pooling == "mean":
                raise ConfigError(
                    f"lookups: weights, but table {table.name!r} has pooling 'mean'; weights are for 'sum'"
                )
        if self.offsets is None:  # one row each, sample by sample
            weights_L = weights_L.view(len(tables), -1).t().reshape(-1)
        return replace(self, weights=weights_L)

    def pool(self, received_RD: Tensor, samples: int, tables: int) -> Tensor:
        """Return the bags, B x T x D."""
        dim = received_RD.shape[1]
        out = torch.empty(samples * tables, dim, dtype=received_RD.dtype)
        rows, index = received_RD.numpy(), self.index
        if self.weights is not None:
            rows, index = rows[index] * self._weights(rows.dtype), np.arange(len(index))
        kernels.active().sum_bags(out.numpy(), rows, index, self.offsets)
        if self.offsets is None:
            out_BTD = out.view(samples, tables, dim)
        else:
            out_BTD = out.view(tables, samples, dim).transpose(0, 1)
        return out_BTD if self.scale_TB is None else out_BTD * self._scale(out.dtype)

    def unpool(self, gradient_BTD: Tensor, rows: int) -> Tensor:
        """Return the gradients of as many received rows, R x D."""
        dim = gradient_BTD.shape[2]
        if self.scale_TB is not None:
            gradient_BTD = gradient_BTD * self._scale(gradient_BTD.dtype)
        gradient_RD = torch.zeros(rows, dim, dtype=gradient_BTD.dtype)
        source, of_L = self._by_bag(gradient_BTD), self._bag_of_each()
        if self.weights is not None:
            source = source if of_L is None else source[of_L]
            source, of_L = source * self._weights(source.dtype), None
        kernels.active().add_rows(gradient_RD.numpy(), self.index, source, of_L)
        return gradient_RD

    def gradient_of_weights(self, gradient_BTD: Tensor, received_RD: Tensor) -> Tensor:
        """Return the product of each lookup's row and the gradient of its bag."""
        assert self.weights is not None, "only weighted bags have gradients of weights"
        source, of_L = torch.from_numpy(self._by_bag(gradient_BTD)), self._bag_of_each()
        bag_LD = source if of_L is None else source[torch.from_numpy(of_L)]
        return (received_RD[torch.from_numpy(self.index)] * bag_LD).sum(1).to(self.weights.dtype)

    def _by_bag(self, gradient_BTD: Tensor) -> NDArray[Any]:
        """Gradients of bags in the order of bags."""
        ordered = gradient_BTD if self.offsets is None else gradient_BTD.transpose(0, 1)
        by_bag: NDArray[Any] = ordered.contiguous().view(-1, gradient_BTD.shape[2]).numpy()
        return by_bag

    def _bag_of_each(self) -> Ints | None:
        """Bag of each row of the index; None: one each."""
        if self.offsets is None:
            return None
        return torch.repeat_interleave(torch.from_numpy(self.offsets).diff()).numpy()

    def _scale(self, dtype: torch.dtype) -> Tensor:
        return torch.from_numpy(self.scale_TB).to(dtype).t()[..., None]

    def _weights(self, dtype: Any) -> NDArray[Any]:
        assert self.weights is not None, "asked for where there are weights"
        column: NDArray[Any] = self.weights.detach().numpy().astype(dtype)[:, None]
        return column


def _scale(tables: Sequence[Table], lengths_TB: Ints) -> NDArray[np.float64] | None:
    mean_T = np.array([table.pooling == "mean" for table in tables])
    if not (mean_T[:, None] & (lengths_TB > 1)).any():
        return None
    return np.where(mean_T[:, None], 1.0 / np.maximum(lengths_TB, 1), 1.0)
