"""The model behind synthetic labels. It is known exactly, so the largest possible AUC is known too.

    logit = bias + dense features + sum of effect(table, row) over tables
                 + sum of latent * latent over pairs of tables

Effects and latents are nearly normal hashes of (seed, table, row), so tables of any size need no
memory. A bag contributes the mean over its ids, and an empty bag nothing. On a calibration sample
the three sums are scaled to fixed shares of the logit's variance: dense features 25 %, tables 55 %,
pairs 20 %. The bias is set for a base rate of 0.27. With the deviation of the logit chosen here,
the Bayes AUC is near 0.80.

Sums run term by term, so that a sample's logit has the same bits in every batch. Shape legend:
``B`` samples, ``F`` dense features, ``T`` tables, ``C`` id columns (several for a bag).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laconic.data.hashing import Words, key64, mix64

__all__ = ["Planted", "nearly_normal"]

Floats = NDArray[np.float64]

DEVIATION = 1.4
BASE_RATE = 0.27
SHARES = {"dense": 0.25, "tables": 0.55, "pairs": 0.20}
PAIRS = 4

_FIELD = np.uint64(0xFFFF)
_NORMAL_MEAN = 2.0 * 0xFFFF
_NORMAL_DEVIATION = math.sqrt(4 * (65536**2 - 1) / 12)


def nearly_normal(hashes: Words) -> Floats:
    """Standardize sums of the four 16-bit fields of hashes; tails of this normal end at 3.5."""
    total = hashes & _FIELD
    for shift in (16, 32, 48):
        total += (hashes >> np.uint64(shift)) & _FIELD
    return (total.astype(np.float64) - _NORMAL_MEAN) / _NORMAL_DEVIATION


@dataclass(frozen=True, slots=True)
class IdColumns:
    """Ids of samples, the columns of each table side by side."""

    ids_CB: NDArray[np.int64]
    table_C: NDArray[np.int64]
    weight_CB: Floats | None
    """1 / length of the bag, and 0 beyond its end; None if every table has exactly one id."""


class Planted:
    """A model of dense features and tables; ``calibrate`` before use."""

    def __init__(self, *, tables: int, dense: int, seed: int, one_hot_T: NDArray[np.bool_]) -> None:
        self._keys_T = np.array([key64("effect", seed, t) for t in range(tables)], dtype=np.uint64)
        draw = nearly_normal(
            mix64(key64("weights", seed) ^ np.arange(1, dense + tables + 1, dtype=np.uint64))
        )
        self._dense_F: Floats = draw[:dense]
        self._table_T: Floats = 0.5 + np.abs(draw[dense:])
        order = np.argsort(mix64(self._keys_T))
        order = order[one_hot_T[order]]
        self._pairs = [(int(a), int(b)) for a, b in zip(order[0::2], order[1::2], strict=False)][:PAIRS]
        self._center_T = np.zeros(tables)
        self._pair_scale = 1.0
        self._bias = 0.0

    def calibrate(self, dense_BF: NDArray[np.float32], columns: IdColumns) -> None:
        """Scale the parts and set the bias on samples of the distribution that will be scored."""
        effect_CB, latent_TB = self._hidden(columns)
        for t in range(self._table_T.size):
            seen = self._of_table(t, effect_CB, columns)
            self._center_T[t] = seen.mean()
            deviation = seen.std()
            self._table_T[t] = self._table_T[t] / deviation if deviation > 1e-9 else 0.0
        parts = {
            "dense": self._dense_part(dense_BF),
            "tables": self._table_part(effect_CB, columns),
            "pairs": self._pair_part(latent_TB),
        }
        spread = {name: float(part.std()) for name, part in parts.items()}
        present = sum(SHARES[name] for name in parts if spread[name] > 0)
        scale = {
            name: DEVIATION * math.sqrt(SHARES[name] / present) / spread[name] if spread[name] > 0 else 0.0
            for name in parts
        }
        self._dense_F = self._dense_F * scale["dense"]
        self._table_T = self._table_T * scale["tables"]
        self._pair_scale = scale["pairs"]
        self._bias = _bias_for(BASE_RATE, self._sum(dense_BF, effect_CB, latent_TB, columns))

    def logits(self, dense_BF: NDArray[np.float32], columns: IdColumns) -> Floats:
        """Log odds of a positive label, exactly as labels are drawn from them."""
        return self._sum(dense_BF, *self._hidden(columns), columns)

    def _sum(
        self, dense_BF: NDArray[np.float32], effect_CB: Floats, latent_TB: Floats, columns: IdColumns
    ) -> Floats:
        total = self._dense_part(dense_BF)
        total += self._table_part(effect_CB, columns)
        total += self._pair_part(latent_TB)
        total += self._bias
        return total

    def _hidden(self, columns: IdColumns) -> tuple[Floats, Floats]:
        """Return effect and latent of every looked-up row: uncorrelated sums of a hash's fields."""
        hashes = mix64(columns.ids_CB.view(np.uint64) ^ self._keys_T[columns.table_C][:, None])
        paired = sorted({t for pair in self._pairs for t in pair})
        latent_TB = np.zeros((self._keys_T.size, hashes.shape[1]))
        for t in paired:
            column = int(np.searchsorted(columns.table_C, t))
            flipped = hashes[column] ^ np.uint64(0xFFFFFFFF)  # fields a, b, 65535 - c, 65535 - d
            latent_TB[t] = nearly_normal(flipped)
        return nearly_normal(hashes), latent_TB

    def _of_table(self, t: int, effect_CB: Floats, columns: IdColumns) -> Floats:
        if columns.weight_CB is None:
            of_one: Floats = effect_CB[t]
            return of_one
        begin, end = np.searchsorted(columns.table_C, (t, t + 1))
        total: Floats = np.zeros(effect_CB.shape[1])
        for c in range(begin, end):
            total += (effect_CB[c] - self._center_T[t]) * columns.weight_CB[c]
        total += self._center_T[t]
        return total

    def _dense_part(self, dense_BF: NDArray[np.float32]) -> Floats:
        total = np.zeros(dense_BF.shape[0])
        for f, weight in enumerate(self._dense_F):
            total += weight * dense_BF[:, f]
        return total

    def _table_part(self, effect_CB: Floats, columns: IdColumns) -> Floats:
        total = np.zeros(effect_CB.shape[1])
        for t, weight in enumerate(self._table_T):
            total += weight * (self._of_table(t, effect_CB, columns) - self._center_T[t])
        return total

    def _pair_part(self, latent_TB: Floats) -> Floats:
        total = np.zeros(latent_TB.shape[1])
        for a, b in self._pairs:
            total += self._pair_scale * (latent_TB[a] * latent_TB[b])
        return total


def _bias_for(rate: float, logits: Floats) -> float:
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        if float((1 / (1 + np.exp(-(logits + middle)))).mean()) < rate:
            low = middle
        else:
            high = middle
    return low
