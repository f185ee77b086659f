"""Neural collaborative filtering: will this user take this item?

After He et al., "Neural Collaborative Filtering" (2017): the product of both embeddings beside an MLP of both.
Embeddings are dense parameters, as where a model is data-parallel as a whole: a batch touches few of their rows.
Shape legend: ``B`` samples, ``D`` embedding dimension.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.reduction.models.task import Batch, Task, zipf

__all__ = ["BOOK_CROSSING", "Ncf"]

BOOK_CROSSING = "book_crossing.parquet"
Ints = NDArray[np.int64]


class Ncf(Task):
    """Users and items; as many as Book-Crossing has where ids are generated."""

    kind: Literal["ncf"] = "ncf"
    users: int = 105_283
    items: int = 340_556
    dim: int = 64
    hidden: tuple[int, ...] = (128, 64)
    batch: int = 1024
    data: Path | None = None
    """Folder of ``book_crossing.parquet``; None: generated ids, few of them often."""

    @property
    def name(self) -> str:
        """Tell where ids come from."""
        return f"ncf ({'Book-Crossing' if self.data is not None else 'generated'})"

    def module(self) -> nn.Module:
        """Make tables and layers; data knows how many users and items it has."""
        if self.data is None:
            return _Module(self.users, self.items, self.dim, self.hidden)
        users, items, _ = _book_crossing(self.data)
        return _Module(int(users.max()) + 1, int(items.max()) + 1, self.dim, self.hidden)

    def batch_of(self, rank: int, step: int) -> Batch:
        """Return pairs of ids and whether the user took the item."""
        draw = np.random.default_rng([2, rank, step])
        if self.data is None:
            users = zipf((0, rank, step), self.users, (self.batch,))
            items = zipf((1, rank, step), self.items, (self.batch,))
            labels = draw.integers(0, 2, self.batch)
        else:
            columns = _book_crossing(self.data)
            here = draw.integers(0, len(columns[0]), self.batch)
            users, items, labels = (column[here] for column in columns)
        ids = (torch.from_numpy(users), torch.from_numpy(items))
        return Batch(ids, torch.from_numpy(labels.astype(np.float32)))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Binary cross-entropy."""
        return nn.functional.binary_cross_entropy_with_logits(output, target)


class _Module(nn.Module):
    def __init__(self, users: int, items: int, dim: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, dim), nn.Embedding(items, dim)
        layers: list[nn.Module] = []
        width = 2 * dim
        for size in hidden:
            layers += [nn.Linear(width, size), nn.ReLU()]
            width = size
        self.deep = nn.Sequential(*layers)
        self.logit = nn.Linear(width + dim, 1)

    def forward(self, users_B: Tensor, items_B: Tensor) -> Tensor:
        users_BD, items_BD = self.users(users_B), self.items(items_B)
        deep = self.deep(torch.cat([users_BD, items_BD], dim=1))
        return self.logit(torch.cat([deep, users_BD * items_BD], dim=1)).squeeze(1)  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _book_crossing(folder: Path) -> tuple[Ints, Ints, Ints]:
    """Users, items and labels of all samples; ids are numbered as they come."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(folder / BOOK_CROSSING, columns=["c_user", "c_isbn", "label"])
    ids = [
        pc.dictionary_encode(table[name].combine_chunks()).indices.to_numpy().astype(np.int64)
        for name in ("c_user", "c_isbn")
    ]
    return ids[0], ids[1], table["label"].to_numpy().astype(np.int64)
