"""DLRM with its tables beside it, data-parallel as a whole; Criteo Terabyte's tables, cut to a size.

Shape legend: ``B`` samples, ``F`` dense features, ``T`` tables, ``D`` embedding dimension.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.reduction.models.task import Batch, Task, zipf
from laconic.data import TERABYTE_ROWS
from laconic.models import DLRM

__all__ = ["Dlrm"]

_DENSE = 13


class Dlrm(Task):
    """Small enough for every rank to have all of it."""

    kind: Literal["dlrm"] = "dlrm"
    rows: tuple[int, ...] = TERABYTE_ROWS
    cap: int = 30_000
    dim: int = 16
    batch: int = 1024

    @property
    def name(self) -> str:
        """Ids are generated."""
        return "dlrm (generated)"

    def module(self) -> nn.Module:
        """Make tables and layers."""
        return _Module([min(rows, self.cap) for rows in self.rows], self.dim)

    def batch_of(self, rank: int, step: int) -> Batch:
        """Return dense features, an id of every table, and labels."""
        draw = np.random.default_rng([1, rank, step])
        ids_BT = np.stack(
            [
                zipf((0, rank, step, t), min(rows, self.cap), (self.batch,))
                for t, rows in enumerate(self.rows)
            ],
            axis=1,
        )
        dense_BF = draw.standard_normal((self.batch, _DENSE), np.float32)
        label_B = (draw.random(self.batch) < 0.25).astype(np.float32)
        return Batch((torch.from_numpy(dense_BF), torch.from_numpy(ids_BT)), torch.from_numpy(label_B))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Binary cross-entropy."""
        return nn.functional.binary_cross_entropy_with_logits(output, target)


class _Module(nn.Module):
    def __init__(self, rows_T: list[int], dim: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, dim) for rows in rows_T)
        self.model = DLRM(dense=_DENSE, tables=len(rows_T), dim=dim)

    def forward(self, dense_BF: Tensor, ids_BT: Tensor) -> Tensor:
        embeddings_BTD = torch.stack([table(ids_BT[:, t]) for t, table in enumerate(self.tables)], dim=1)
        return self.model(dense_BF, embeddings_BTD)  # type: ignore[no-any-return]
