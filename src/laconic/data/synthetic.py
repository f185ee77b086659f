"""A generator of samples like Criteo's click logs: skewed lookups, labels from a planted model.

Every number is a hash of (seed, split, sample, column). So any position of any epoch is made
directly, the same on every rank, and nothing is stored. Each epoch of "train" has the same samples
in another order; "eval" keeps one order. Shape legend: ``B`` samples, ``T`` tables, ``C`` id
columns (several for a bag).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator

from laconic.config import Settings
from laconic.data.hashing import Words, key64, mix64, uniform
from laconic.data.planted import IdColumns, Planted, nearly_normal
from laconic.data.source import Categorical, Samples, Schema, check_split, permute, rank_slices
from laconic.lookups import Lookups

__all__ = ["TERABYTE_ROWS", "Synthetic", "SyntheticSettings", "zipf_rows"]


Floats = NDArray[np.float64]


def zipf_rows(uniform_TB: Floats, rows_T: NDArray[np.int64], exponent: float) -> NDArray[np.int64]:
    """Find the row at each quantile in [0, 1) of its table; overwrites ``uniform_TB``.

    Row ``k`` (0 = most frequent) has a probability close to ``(k + 1) ** -exponent``, normalized:
    it is the integral of ``x ** -exponent`` from ``k + 1/2`` to ``k + 3/2``. For exponent 1.05 it
    is 11 % above the exact weight for row 0, 2 % for row 1, and below 1 % from row 3 on. Exponent 0
    is uniform.
    """
    log_span_T1 = np.log((rows_T + 0.5) / 0.5)[:, None]
    x = uniform_TB
    power = 1.0 - exponent
    if power == 0.0:
        x *= log_span_T1
    else:
        x *= np.expm1(power * log_span_T1)
        np.log1p(x, out=x)
        x /= power
    np.exp(x, out=x)
    x *= 0.5  # x is in [1/2, rows + 1/2): its nearest integers are the ranks 1 .. rows
    x -= 0.5
    row_TB = x.astype(np.int64)
    return np.minimum(row_TB, rows_T[:, None] - 1, out=row_TB)


# fmt: off
TERABYTE_ROWS = (
    45833188, 36746, 17245, 7413, 20243, 3, 7114, 1441, 62, 29275261, 1572176, 345138, 10, 2209, 11267, 128,
    4, 974, 14, 48937457, 11316796, 40094537, 452104, 12606, 104, 35,
)
"""Rows of the 26 tables of Criteo Terabyte, as MLPerf's DLRM counts them."""
# fmt: on

_CALIBRATION = 8192
_IN_ORDER = 32768


class SyntheticSettings(Settings):
    """Generated samples, shaped like Criteo's, with labels from a planted model."""

    kind: Literal["synthetic"] = "synthetic"

    rows: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=TERABYTE_ROWS, min_length=1)
    """Rows of each table; by default those of Criteo Terabyte."""

    cap: int | None = Field(default=1_000_000, ge=1)
    """Largest number of rows of a table; larger tables are cut to it."""

    bags: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    """Largest number of ids of a sample, for each table. 1 means exactly one id; n > 1 means bags
    of 0 to n ids, each length as likely."""

    dense: int = Field(default=13, ge=0)
    """Number of dense features."""

    zipf: float = Field(default=1.05, ge=0)
    """Skew of lookups: row k is looked up in proportion to (k + 1) ** -zipf; 0 is uniform."""

    samples: int = Field(default=1 << 20, ge=0)
    """Number of samples in a training epoch."""

    eval_samples: int = Field(default=1 << 16, ge=0)
    """Number of samples to evaluate on."""

    seed: int = 0
    """Seed of samples, labels and their order."""

    @model_validator(mode="after")
    def _a_bag_for_each_table(self) -> Self:
        if self.bags is not None and len(self.bags) != len(self.rows):
            raise ValueError(
                f"expected {len(self.rows)} bag lengths, one for each table, got {len(self.bags)}"
            )
        return self


class Synthetic:
    """A source of generated samples; ids are ranked by frequency (0 = most frequent)."""

    def __init__(self, settings: SyntheticSettings) -> None:
        rows, cap, dense, seed = settings.rows, settings.cap, settings.dense, settings.seed
        bags = settings.bags or (1,) * len(rows)
        self.schema = Schema(
            tuple(f"d{f}" for f in range(dense)),
            tuple(
                Categorical(f"c{t}", min(count, cap or count), bag=length > 1)
                for t, (count, length) in enumerate(zip(rows, bags, strict=True))
            ),
        )
        self.seed = seed
        self._zipf = settings.zipf
        self._samples = {"train": settings.samples, "eval": settings.eval_samples}
        self._bags_T = np.array(bags, dtype=np.int64)
        self._table_C = np.repeat(np.arange(len(bags)), self._bags_T)
        self._rows_C = np.array(self.schema.rows, dtype=np.int64)[self._table_C]
        columns = {"dense": dense, "id": self._table_C.size, "length": len(bags), "label": 1}
        self._keys = {
            name: np.array([key64(name, c) for c in range(count)], dtype=np.uint64)
            for name, count in columns.items()
        }
        self._planted = Planted(tables=len(bags), dense=dense, seed=seed, one_hot_T=self._bags_T == 1)
        words = self._words("calibration", np.arange(_CALIBRATION))
        self._planted.calibrate(self._dense(words), self._ids(words))

    def samples_in(self, split: str) -> int:
        """Count the samples of an epoch."""
        check_split(split)
        return self._samples[split]

    def streams(self, split: str, ranks: int) -> int:
        """Return 1: nothing is read."""
        return 1

    def batches(
        self,
        split: str,
        *,
        global_batch: int,
        rank: int,
        ranks: int,
        epoch: int = 0,
        start: int = 0,
        streams: int | None = None,
    ) -> Iterator[Samples]:
        """Yield this rank's slice of every global batch, from sample ``start`` of the epoch on."""
        total = self.samples_in(split)
        slices = rank_slices(total, global_batch=global_batch, rank=rank, ranks=ranks, start=start)
        return (self._make(split, self._order(split, epoch, begin, end)) for begin, end in slices)

    def lookups_in_order(self, split: str) -> Iterator[Lookups]:
        """Yield the lookups of all samples, in the order of their numbers."""
        total = self.samples_in(split)
        return (
            self._lookups(self._ids(self._words(split, np.arange(begin, min(begin + _IN_ORDER, total)))))
            for begin in range(0, total, _IN_ORDER)
        )

    def true_logits(self, split: str, *, epoch: int = 0, start: int = 0, count: int) -> NDArray[np.float64]:
        """Return the log odds from which the labels of ``count`` samples were drawn."""
        words = self._words(split, self._order(split, epoch, start, start + count))
        return self._planted.logits(self._dense(words), self._ids(words))

    def _order(self, split: str, epoch: int, begin: int, end: int) -> NDArray[np.int64]:
        position = np.arange(begin, end)
        if split == "eval":
            return position
        return permute(position, self._samples[split], key64("order", self.seed, epoch))

    def _words(self, split: str, number_B: NDArray[np.int64]) -> Words:
        return mix64(number_B.astype(np.uint64) ^ key64(split, self.seed))

    def _make(self, split: str, number_B: NDArray[np.int64]) -> Samples:
        words_B = self._words(split, number_B)
        dense_BF, columns = self._dense(words_B), self._ids(words_B)
        chance_B = 1 / (1 + np.exp(-self._planted.logits(dense_BF, columns)))
        label_B = uniform(mix64(words_B ^ self._keys["label"][0])) < chance_B
        return Samples(
            torch.from_numpy(label_B.astype(np.float32)), torch.from_numpy(dense_BF), self._lookups(columns)
        )

    def _dense(self, words_B: Words) -> NDArray[np.float32]:
        return nearly_normal(mix64(words_B[:, None] ^ self._keys["dense"])).astype(np.float32)

    def _ids(self, words_B: Words) -> IdColumns:
        hashes_CB = mix64(self._keys["id"][:, None] ^ words_B)
        ids_CB = zipf_rows(uniform(hashes_CB), self._rows_C, self._zipf)
        if not self.schema.has_bags:
            return IdColumns(ids_CB, self._table_C, None)
        lengths_TB = self._lengths(words_B)
        first_C = np.concatenate([np.arange(length) for length in self._bags_T])
        length_CB = lengths_TB[self._table_C]
        weight_CB = np.where(first_C[:, None] < length_CB, 1.0 / np.maximum(length_CB, 1), 0.0)
        return IdColumns(ids_CB, self._table_C, weight_CB)

    def _lengths(self, words_B: Words) -> NDArray[np.int64]:
        any_TB = (
            mix64(self._keys["length"][:, None] ^ words_B) % (self._bags_T + 1).astype(np.uint64)[:, None]
        )
        return np.where(self._bags_T[:, None] == 1, 1, any_TB.astype(np.int64))

    def _lookups(self, columns: IdColumns) -> Lookups:
        if columns.weight_CB is None:
            return Lookups.single(torch.from_numpy(columns.ids_CB))
        present_CB = columns.weight_CB > 0
        ids, lengths = [], []
        for t in range(self.schema.tables):
            begin, end = np.searchsorted(columns.table_C, (t, t + 1))
            present_BC = present_CB[begin:end].T
            ids.append(columns.ids_CB[begin:end].T[present_BC])
            lengths.append(present_BC.sum(axis=1))
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
        return Lookups(torch.from_numpy(np.concatenate(ids)), torch.from_numpy(offsets), self.schema.tables)
