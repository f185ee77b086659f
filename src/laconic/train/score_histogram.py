"""Evaluation in bounded memory: a histogram of scores, and the sum of their losses.

::

    score    float32, a logit; -0.0 counts as 0.0
    key      its bits as int32, all but the sign inverted where it is negative: ascends with scores
    bin      key >> shift

``shift`` is the smallest number with which all scores fill at most ``most_bins`` bins. A part of
the samples never needs a larger shift than all of them. So shift, bins and counts depend on the
samples only, not on their order and not on their division over ranks.

AUC counts each pair of a positive and a negative in one bin as a tie, half a pair won. It wins 0,
1/2 or 1, so AUC is off by at most half the share of such pairs: ``sum(P_u N_u) / (2 P N)`` for
``P_u`` positives and ``N_u`` negatives in bin ``u``. With shift 0 a bin is a score, AUC is exact.

The loss of a sample is rounded to a multiple of 2**-62, and multiples are added as integers.

Shape legend: ``B`` samples, ``L`` the two labels, ``U`` bins that are not empty, in ascending
order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from laconic.errors import ConfigError
from laconic.train.score_checks import checked_scores

__all__ = ["ScoreHistogram", "area_under_curve", "most_area_error"]

Ints = NDArray[np.int64]

_PIECE = 2**16
"""Samples whose losses are added in one go: their float64 values stay in the cache."""
_HIGH_BITS, _LOW_BITS = 20, 42
"""Bits of a loss behind the point, in two words; a piece's sum of either is below 2**58."""
_LARGE = 2.0**22
"""Loss from which on the high word could be too small."""
_ROUNDING = 2.0**-52
"""More than what an AUC, another one and their distance lose together in float64."""


class ScoreHistogram:
    """Scores and labels of an evaluation, in memory that does not grow with their number.

    Each rank fills its own; ``ScoreHistogram.merged(parts)`` has the samples of all of them.
    Figures are the same to the last bit, however samples are divided.
    """

    def __init__(self, most_bins: int = 2**20) -> None:
        """Take memory for ``most_bins`` bins of 20 bytes, and as many samples of 5 bytes."""
        if most_bins < 2:  # scores of both signs never share a bin
            raise ConfigError(f"score_histogram.most_bins: expected a number >= 2, got {most_bins!r}")
        self._most_bins = most_bins
        self._bins = _Bins(0, np.empty(0, np.int32), np.empty((2, 0), np.int64))
        self._loss = 0  # multiples of 2**-62, of samples whose loss is finite
        self._infinite = 0
        self._keys = np.empty(most_bins, np.int32)
        self._labels = np.empty(most_bins, np.bool_)
        self._waiting = 0  # samples that are in no bin yet

    def add(self, scores_B: Tensor, labels_B: Tensor) -> None:
        """Take a batch, possibly empty; float64 scores are rounded to float32."""
        scores_B, labels_B = checked_scores(scores_B, labels_B)
        scores = scores_B.float().cpu().numpy() + np.float32(0)
        labels = labels_B.bool().cpu().numpy()
        begin = 0
        while begin < len(scores):
            end = begin + min(_PIECE, self._most_bins - self._waiting)
            self._take(scores[begin:end], labels[begin:end])
            begin = end

    def _take(self, scores: NDArray[np.float32], labels: NDArray[np.bool_]) -> None:
        loss, infinite = _sum_of_losses(scores, labels)
        self._loss += loss
        self._infinite += infinite
        place = slice(self._waiting, self._waiting + len(scores))
        self._keys[place], self._labels[place] = _ascending_keys(scores), labels
        self._waiting = place.stop
        if self._waiting == self._most_bins:
            self._sort()

    def _sort(self) -> _Bins:
        """Put all samples into bins, and return these."""
        if self._waiting:
            keys, labels = self._keys[: self._waiting], self._labels[: self._waiting]
            parts = [_Bins.of(keys[labels == label], label, self._bins.shift) for label in (0, 1)]
            self._bins, self._waiting = _united([self._bins, *parts], self._most_bins), 0
        return self._bins

    @classmethod
    def merged(cls, parts: Iterable[ScoreHistogram]) -> ScoreHistogram:
        """All samples of all parts; there is one part or more, all with the same ``most_bins``."""
        parts = list(parts)
        merged = cls(parts[0]._most_bins)
        merged._bins = _united([part._sort() for part in parts], merged._most_bins)
        merged._loss = sum(part._loss for part in parts)
        merged._infinite = sum(part._infinite for part in parts)
        return merged

    def __getstate__(self) -> dict[str, Any]:
        """Bins without the memory for samples, so that a message has at most 20 bytes a bin."""
        self._sort()
        nothing = {"_keys": None, "_labels": None}
        return {**self.__dict__, **nothing}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._keys = np.empty(self._most_bins, np.int32)
        self._labels = np.empty(self._most_bins, np.bool_)

    @property
    def shift(self) -> int:
        """Low bits of a key that its bin leaves out; 0: every score has a bin of its own."""
        return self._sort().shift

    @property
    def samples(self) -> int:
        """Number of all samples."""
        return int(self._sort().counts_LU.sum())

    @property
    def positives(self) -> int:
        """Number of samples of label 1."""
        return int(self._sort().counts_LU[1].sum())

    def auc(self) -> float:
        """Area under the ROC curve, within ``auc_error``; NaN unless both classes occur."""
        negatives_U, positives_U = self._sort().counts_LU
        return area_under_curve(positives_U, negatives_U)

    def auc_error(self) -> float:
        """Most by which ``auc`` is off, rounding included; 0 where it is exact."""
        bins = self._sort()
        return most_area_error(bins.counts_LU[1], bins.counts_LU[0]) if bins.shift else 0.0

    def log_loss(self) -> float:
        """Mean over samples, exact but for rounding each loss; NaN without samples."""
        if self._infinite or not self.samples:
            return math.inf if self._infinite else math.nan
        return self._loss / (self.samples << (_HIGH_BITS + _LOW_BITS))

    def normalized_entropy(self) -> float:
        """Log loss over the entropy of the labels' base rate; NaN with one class only.

        Below 1 is better than knowing the rate.
        """
        if self.positives in (0, self.samples):
            return math.nan
        rate = self.positives / self.samples
        return self.log_loss() / -(rate * math.log(rate) + (1 - rate) * math.log1p(-rate))


def area_under_curve(positives_U: Ints, negatives_U: Ints) -> float:
    """Share of pairs that positives win, a tie counted half; NaN without pairs.

    Counts are of scores, or bins of them, in ascending order.
    """
    pairs = int(positives_U.sum()) * int(negatives_U.sum())
    if not pairs:
        return math.nan
    below_U = negatives_U.cumsum() - negatives_U
    won_twice = _sum_of_products(positives_U, 2 * below_U + negatives_U, 2 * pairs)
    return won_twice / (2 * pairs)


def most_area_error(positives_U: Ints, negatives_U: Ints) -> float:
    """Return what AUC is off by at most, where scores in one bin count as equal; 0 without ties."""
    pairs = int(positives_U.sum()) * int(negatives_U.sum())
    ties = _sum_of_products(positives_U, negatives_U, pairs)
    return ties / (2 * pairs) + _ROUNDING if ties else 0.0


def _sum_of_products(a_U: Ints, b_U: Ints, most: int) -> int:
    """``most``: what the sum is at most, which tells whether int64 has room for it."""
    if most < 2**63:
        return int((a_U * b_U).sum())
    return sum(map(mul, a_U.tolist(), b_U.tolist()))


@dataclass(frozen=True, slots=True)
class _Bins:
    shift: int
    keys_U: NDArray[np.int32]
    counts_LU: Ints

    @classmethod
    def of(cls, keys: NDArray[np.int32], label: int, shift: int) -> _Bins:
        """Bins of samples that have one label."""
        keys_U, counts_U = np.unique(keys >> shift, return_counts=True)
        counts_LU = np.zeros((2, len(keys_U)), np.int64)
        counts_LU[label] = counts_U
        return cls(shift, keys_U, counts_LU)


def _united(parts: Sequence[_Bins], most_bins: int) -> _Bins:
    """All counts of all parts, with the smallest shift that is possible for them."""
    shift = max(part.shift for part in parts)
    keys = np.concatenate([part.keys_U >> (shift - part.shift) for part in parts])
    order = keys.argsort(kind="stable")  # which takes runs that ascend as they are
    keys = keys[order]
    while len(firsts := np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])) > most_bins:
        keys, shift = keys >> 1, shift + 1
    counts = np.concatenate([part.counts_LU for part in parts], axis=1)
    return _Bins(shift, keys[firsts], np.add.reduceat(counts[:, order], firsts, axis=1))


def _ascending_keys(scores: NDArray[np.float32]) -> NDArray[np.int32]:
    bits = scores.view(np.int32)
    return bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))


def _sum_of_losses(scores: NDArray[np.float32], labels: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the sum of finite losses in units of 2**-62, and how many are infinite.

    NumPy's exp and log1p return the same wherever a value is in an array. Those of torch do not:
    its vector code leaves what remains at the end to another function.
    """
    wrong = np.where(labels, -scores, scores).astype(np.float64)
    losses = np.maximum(wrong, 0) + np.log1p(np.exp(-np.abs(wrong)))
    total = infinite = 0
    is_large = losses >= _LARGE
    if is_large.any():
        large = losses[is_large]
        infinite = int(np.isinf(large).sum())
        total = sum(
            int(loss * 2.0 ** (_HIGH_BITS + _LOW_BITS)) for loss in large[np.isfinite(large)].tolist()
        )
        losses = losses[~is_large]
    scaled = losses * 2.0**_HIGH_BITS
    high = np.floor(scaled)
    low = np.rint((scaled - high) * 2.0**_LOW_BITS)
    total += (int(high.astype(np.int64).sum()) << _LOW_BITS) + int(low.astype(np.int64).sum())
    return total, infinite
