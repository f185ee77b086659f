"""Bytes of a coded list of ids: the coder's own cost function on the expected histogram.

``IdList`` codes differences of sorted ids by classes of size, so its bytes follow from how
differences are distributed. Where a row is needed with probability q, and its neighbors too, the
difference to the next needed one is geometric. Ids that are *ranked* by frequency have neighbors of
their own run. *Mixed* ids, such as hashes, have any neighbors, so all differences follow the mean
q.

Pooled tables send all lookups in the order of samples, and how long the bags are. Lengths travel
unless every bag has exactly one id at its owner. How they vary is not known from frequencies; a
Poisson distribution with their mean stands for it. Shape legend: ``G`` runs of rows, ``K`` classes.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from laconic.cost.frequencies import Frequencies
from laconic.cost.link import varint_bytes
from laconic.kernels.reference.sequence.coding import Statistics, choose_coding
from laconic.kernels.reference.sequence.huffman import entropy_q16

__all__ = ["IdOrder", "pooled_bytes", "sorted_ids_bytes", "unsorted_ids_bytes"]

Floats = NDArray[np.float64]
IdOrder = Literal["ranked", "mixed"]
_CLASSES = 172  # numbers below 2^44; a table has fewer rows than 2^40
_STORED_ID_BYTES = 8
_OCTAVE = 8  # runs whose probabilities are within an eighth of an octave have differences of one kind
_LONGEST_BAG = 4096
_SCATTERED, _GOLDEN = 256, (math.sqrt(5) - 1) / 2


def _class_begins() -> Floats:
    """Return the smallest number of each class, and the end: 0 .. 15, then four for each bit."""
    larger = [(4 + k % 4) * 2.0 ** (k // 4 + 2) for k in range(_CLASSES - 16 + 1)]
    return np.array([*map(float, range(16)), *larger])


_BEGIN_K1 = _class_begins()
_RAW_BITS_K = np.array([0] * 16 + [k // 4 + 2 for k in range(_CLASSES - 16)], np.float64)


def sorted_ids_bytes(count_G: Floats, needed_G: Floats, order: IdOrder) -> float:
    """Return bytes of the sorted distinct ids of a list.

    Each of ``count_G`` rows is in it with probability ``needed_G``. Counts may be fractions: the
    share of a run that one owner has.
    """
    weight_G = count_G * needed_G
    ids = float(weight_G.sum())
    if ids <= 0:
        return 0.0
    if order == "mixed":
        weight_G, needed_G = np.array([ids]), np.array([min(ids / float(count_G.sum()), 1.0)])
    chance_K = _gap_classes(*_similar(weight_G, needed_G))
    first = float(np.sum(count_G) / ids) if order == "mixed" else 0.0
    return _list_bytes(ids, ids - 1, chance_K, first)


def unsorted_ids_bytes(ids: float, count_G: Floats, chance_G: Floats, order: IdOrder) -> float:
    """Return bytes of ids in the order of samples; ``chance_G`` of them hit a row of each run."""
    rows = float(count_G.sum())
    if ids <= 0 or rows <= 0:
        return 0.0
    ends_G, mass_G = np.cumsum(count_G), count_G * chance_G
    scattered_K: Floats = np.zeros(_CLASSES)
    if order == "mixed":  # hot rows have places of their own, anywhere; all others are everywhere
        places = np.arange(1, min(_SCATTERED, round(rows)) + 1)
        hot = np.diff(
            np.interp(np.append(0, places), np.append(0.0, ends_G), np.append(0.0, np.cumsum(mass_G)))
        )
        class_of = np.searchsorted(_BEGIN_K1, np.floor(places * _GOLDEN % 1 * rows), side="right") - 1
        scattered_K = _sums(class_of, hot, _CLASSES)
        ends_G, mass_G = np.array([rows]), np.array([max(mass_G.sum() - hot.sum(), 0.0)])
    # the share of ids below a number, linear within a run
    below_K1 = np.interp(_BEGIN_K1, np.append(0.0, ends_G), np.append(0.0, np.cumsum(mass_G)))
    return _list_bytes(ids, ids, np.diff(below_K1) + scattered_K, 0.0)


def pooled_bytes(
    frequencies: Frequencies, order: IdOrder, samples: float, share: float, *, coded: bool
) -> float:
    """Return bytes of all ids and lengths of bags for a rank that holds this share of the rows."""
    ids = samples * frequencies.lookups_per_sample * frequencies.share * share
    lengths = _lengths_bytes(frequencies.lookups_per_sample * frequencies.share * share, samples, coded)
    if not coded:
        return 8 * ids + lengths
    held_G = frequencies.count_G.astype(np.float64) * share
    return unsorted_ids_bytes(ids, held_G, frequencies.probability_G, order) + lengths


def _lengths_bytes(mean: float, samples: float, coded: bool) -> float:
    """Return bytes of the lengths of bags, which divide the ids into samples."""
    if mean == 0 or samples == 0 or math.isclose(mean, 1.0, rel_tol=1e-9):
        return 0.0
    if not coded:
        return 8 * samples
    length = np.arange(min(int(mean + 10 * math.sqrt(mean) + 10), _LONGEST_BAG) + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.maximum(length[1:], 1)))])
    poisson = np.exp(length * math.log(mean) - mean - log_factorial)
    return unsorted_ids_bytes(samples, np.ones(len(length)), poisson, "ranked")


def _similar(weight_G: Floats, needed_G: Floats) -> tuple[Floats, Floats]:
    """Unite runs of nearly the same probability."""
    some = weight_G > 0
    weight, needed = weight_G[some], needed_G[some]
    _, kind = np.unique(np.rint(_OCTAVE * np.log2(needed)), return_inverse=True)
    united = _sums(kind, weight)
    return united, _sums(kind, weight * needed) / united


def _sums(kind: NDArray[np.int64], weight: Floats, kinds: int = 0) -> Floats:
    sums: NDArray[Any] = np.bincount(kind, weight, minlength=kinds)
    return sums


def _gap_classes(weight_G: Floats, needed_G: Floats) -> Floats:
    """Return how classes of differences are distributed: ``P(>= x) = (1 - q) ** (x - 1)``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log_absent = np.log1p(-np.minimum(needed_G, 1.0))
        beyond = np.exp(np.multiply.outer(log_absent, np.maximum(_BEGIN_K1 - 1, 0)))
    beyond[:, :2] = 1.0  # no difference is below 1; and 0 * -inf is not a number
    chance_K: Floats = weight_G @ -np.diff(beyond, axis=1)
    return chance_K


def _list_bytes(ids: float, numbers: float, chance_K: Floats, reference: float) -> float:
    """Return bytes of count, form, reference, coded classes and raw bits; or 8 bytes an id."""
    chance_K = chance_K / chance_K.sum()
    header = varint_bytes(ids) + 1 + varint_bytes(2 * reference)
    symbols = max(round(numbers), 0)
    bits = 0.0
    if symbols:
        bits = _class_bits(symbols, chance_K) * numbers / symbols + numbers * float(chance_K @ _RAW_BITS_K)
    stored = varint_bytes(ids) + 1 + _STORED_ID_BYTES * ids
    return min(header + math.ceil(bits / 8), stored)


def _class_bits(symbols: int, chance_K: Floats) -> int:
    """Ask the coder for the bits of ``symbols`` classes that have the expected histogram."""
    exact_K = chance_K * symbols
    counts = np.floor(exact_K).astype(np.int64)
    missing = symbols - int(counts.sum())
    counts[np.argsort(counts - exact_K, kind="stable")[:missing]] += 1
    histogram = [*counts.tolist(), *([0] * (256 - _CLASSES))]
    mean_q8 = (int(counts @ np.arange(_CLASSES)) << 8) // symbols
    known = Statistics(histogram, entropy_q16(histogram), symbols, mean_q8)
    return choose_coding(known, 0, 0, centered=False).bits
