"""Models whose gradients are summed: values that make a module and its batches.

======= ==========================================================================================
dlrm    DLRM with its tables, data-parallel as a whole. Tables are Criteo Terabyte's, cut to a size.
encoder A small encoder of BERT's kind, which guesses masked words.
lstm    A language model that guesses the next word. Words that do not occur leave zeros in the
        gradient of the embedding; the gradient of the softmax has none.
mlp     A plain MLP. Its gradient has no zeros, so there is nothing to save.
ncf     Will this user take this item? After He et al., "Neural Collaborative Filtering" (2017): the
        product of both embeddings beside an MLP of both.
======= ==========================================================================================

Embeddings are dense parameters, as in a model that is data-parallel as a whole, and a batch touches
few of their rows. As in BERT, the softmax of the encoder shares its weights with the embedding. So
hardly any entry of its gradient is zero, and leaving zeros out cannot help.

Shape legend: ``B`` samples or sequences, ``S`` words of one, ``F`` dense features, ``T`` tables,
``D`` embedding dimension.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from laconic.config import Settings
from laconic.data import TERABYTE_ROWS
from laconic.data.synthetic import zipf_rows
from laconic.models import DLRM
from laconic.models.model import linear, mlp

BOOK_CROSSING = "book_crossing.parquet"
_DENSE = 13
_MASK, _IGNORE = 0, -100  # a masked word; torch's mark of one that is not to be guessed
_MASKED = 0.15
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TaskBatch:
    """Arguments of the module, and what its result is compared with."""

    inputs: tuple[Tensor, ...]
    target: Tensor


class Task(Settings):
    """A model and its samples: all ranks make the same module, and each has its own batches."""

    kind: str

    @property
    def name(self) -> str:
        """Name of the workload, its data included."""
        return f"{self.kind} (generated)"

    @abstractmethod
    def module(self) -> nn.Module:
        """Make the module; draws come from torch's global generator."""

    @abstractmethod
    def batch_of(self, rank: int, step: int) -> TaskBatch:
        """Return one rank's samples of one step."""

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy of labels or of words, the mean over the batch."""
        if target.is_floating_point():
            return nn.functional.binary_cross_entropy_with_logits(output, target)
        return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=_IGNORE)


class Dlrm(Task):
    """A DLRM that is small enough for every rank to have all of it."""

    kind: Literal["dlrm"] = "dlrm"
    rows: tuple[int, ...] = TERABYTE_ROWS
    cap: int = 30_000
    dim: int = 16
    batch: int = 1024

    def module(self) -> nn.Module:
        """Make tables and layers."""
        return _Dlrm([min(rows, self.cap) for rows in self.rows], self.dim)

    def batch_of(self, rank: int, step: int) -> TaskBatch:
        """Return dense features, an id of every table, and labels."""
        draw = np.random.default_rng([1, rank, step])
        rows_T = [min(rows, self.cap) for rows in self.rows]
        ids_BT = np.stack(
            [_zipf((0, rank, step, t), rows, (self.batch,)) for t, rows in enumerate(rows_T)], axis=1
        )
        dense_BF = draw.standard_normal((self.batch, _DENSE), np.float32)
        label_B = (draw.random(self.batch) < 0.25).astype(np.float32)
        return TaskBatch((torch.from_numpy(dense_BF), torch.from_numpy(ids_BT)), torch.from_numpy(label_B))


class _Dlrm(nn.Module):
    def __init__(self, rows_T: list[int], dim: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, dim) for rows in rows_T)
        self.model = DLRM(dense=_DENSE, tables=len(rows_T), dim=dim)

    def forward(self, dense_BF: Tensor, ids_BT: Tensor) -> Tensor:
        embeddings_BTD = torch.stack([table(ids_BT[:, t]) for t, table in enumerate(self.tables)], dim=1)
        return self.model(dense_BF, embeddings_BTD)  # type: ignore[no-any-return]


class Encoder(Task):
    """An encoder with two layers of 128, as the smallest BERT has, on generated words."""

    kind: Literal["encoder"] = "encoder"
    words: int = 30_522
    dim: int = 128
    heads: int = 2
    layers: int = 2
    length: int = 64
    batch: int = 8

    def module(self) -> nn.Module:
        """Make embeddings and layers."""
        return _Encoder(self)

    def batch_of(self, rank: int, step: int) -> TaskBatch:
        """Return sequences with some words masked, and which words those were."""
        words_BS = 1 + _zipf((0, rank, step), self.words - 1, (self.batch, self.length))
        masked_BS = np.random.default_rng([1, rank, step]).random(words_BS.shape) < _MASKED
        masked_BS[:, 0] = True  # a loss needs at least one
        given_BS = torch.from_numpy(np.where(masked_BS, _MASK, words_BS))
        return TaskBatch((given_BS,), torch.from_numpy(np.where(masked_BS, words_BS, _IGNORE)))


class _Encoder(nn.Module):
    def __init__(self, task: Encoder) -> None:
        super().__init__()
        self.words = nn.Embedding(task.words, task.dim)
        self.places = nn.Embedding(task.length, task.dim)
        layer = nn.TransformerEncoderLayer(
            task.dim, task.heads, 4 * task.dim, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, task.layers)
        self.bias = nn.Parameter(torch.zeros(task.words))
        nn.init.normal_(self.words.weight, 0.0, 0.02)

    def forward(self, words_BS: Tensor) -> Tensor:
        places_S = torch.arange(words_BS.shape[1])
        states = self.encoder(self.words(words_BS) + self.places(places_S))
        return nn.functional.linear(states, self.words.weight, self.bias)


class Lstm(Task):
    """An LSTM with one layer, on generated words with a Zipf distribution."""

    kind: Literal["lstm"] = "lstm"
    words: int = 10_000
    dim: int = 256
    hidden: int = 256
    length: int = 32
    batch: int = 16

    def module(self) -> nn.Module:
        """Make the embedding, the LSTM and the softmax's layer."""
        return _Lstm(self)

    def batch_of(self, rank: int, step: int) -> TaskBatch:
        """Return sequences, and what follows each word."""
        words_BS = torch.from_numpy(_zipf((rank, step), self.words, (self.batch, self.length + 1)))
        return TaskBatch((words_BS[:, :-1],), words_BS[:, 1:])


class _Lstm(nn.Module):
    def __init__(self, task: Lstm) -> None:
        super().__init__()
        self.embedding = nn.Embedding(task.words, task.dim)
        self.lstm = nn.LSTM(task.dim, task.hidden, batch_first=True)
        self.next = nn.Linear(task.hidden, task.words)

    def forward(self, words_BS: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(words_BS))
        return self.next(states)  # type: ignore[no-any-return]


class Mlp(Task):
    """An MLP with about a million parameters."""

    kind: Literal["mlp"] = "mlp"
    inputs: int = 512
    hidden: tuple[int, ...] = (1024, 512, 256)
    batch: int = 512

    def module(self) -> nn.Module:
        """Make layers."""
        layers = mlp("mlp", self.inputs, self.hidden)
        return nn.Sequential(layers, linear(self.hidden[-1], 1), nn.Flatten(0))

    def batch_of(self, rank: int, step: int) -> TaskBatch:
        """Return normal numbers, and the sign of a sum of some."""
        x = np.random.default_rng([rank, step]).standard_normal((self.batch, self.inputs), np.float32)
        return TaskBatch((torch.from_numpy(x),), torch.from_numpy((x[:, :8].sum(1) > 0).astype(np.float32)))


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
        return super().name if self.data is None else "ncf (Book-Crossing)"

    def module(self) -> nn.Module:
        """Make tables and layers; data knows how many users and items it has."""
        if self.data is None:
            return _Ncf(self.users, self.items, self.dim, self.hidden)
        users, items, _ = _book_crossing(self.data)
        return _Ncf(int(users.max()) + 1, int(items.max()) + 1, self.dim, self.hidden)

    def batch_of(self, rank: int, step: int) -> TaskBatch:
        """Return pairs of ids and whether the user took the item."""
        draw = np.random.default_rng([2, rank, step])
        if self.data is None:
            users = _zipf((0, rank, step), self.users, (self.batch,))
            items = _zipf((1, rank, step), self.items, (self.batch,))
            labels = draw.integers(0, 2, self.batch)
        else:
            columns = _book_crossing(self.data)
            here = draw.integers(0, len(columns[0]), self.batch)
            users, items, labels = (column[here] for column in columns)
        ids = (torch.from_numpy(users), torch.from_numpy(items))
        return TaskBatch(ids, torch.from_numpy(labels.astype(np.float32)))


class _Ncf(nn.Module):
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


AnyTask = Annotated[Dlrm | Encoder | Lstm | Mlp | Ncf, Field(discriminator="kind")]


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


def _zipf(seed: tuple[int, ...], rows: int, shape: tuple[int, ...]) -> Ints:
    """Draw ids below ``rows``, few of them often."""
    uniform = np.random.default_rng(seed).random((1, int(np.prod(shape))))
    return zipf_rows(uniform, np.array([rows]), 1.05).reshape(shape)
