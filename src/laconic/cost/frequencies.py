"""Frequencies of a table's rows, as runs of equally likely rows, the likeliest first.

``probability_G[g]`` is the probability that one lookup hits one given row of run ``g``, which has
``count_G[g]`` rows. Runs keep a table small on paper: a trillion rows by Zipf's law are about 6,000
runs. Some of a table's rows, such as its hottest, are ``Frequencies`` too; their probabilities stay
those of lookups in the whole table, so their share is below 1.

The hottest rows of all tables together need one threshold. A row of probability p is missed by
``b`` samples of ``l`` lookups each with probability ``(1 - p) ** (l b) = exp(-r b)``, so its *rate*
is ``r = -l ln(1 - p)``, nearly ``l p``. Rows of equal size compete for the same memory. The best
``k`` to copy are those with the highest rates, in any table and for any batch
(``docs/papers/avoidance.md``, proposition 3). Shape legend: ``T`` tables, ``G`` runs, ``R`` rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.errors import ConfigError

__all__ = ["Frequencies", "hottest_of_all", "rate_of_rank"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_SINGLE_ROWS = 4096  # the head of Zipf's law, row by row
_RUN_GROWTH = 1.01  # probabilities within a run of its tail differ by 1 % at exponent 1
_MOST_ROWS = 2**62


@dataclass(frozen=True, eq=False)
class Frequencies:
    """Rows by falling probability."""

    count_G: Ints
    """Rows of each run, at least one."""

    probability_G: Floats
    """Probability that one lookup hits one given row of the run; strictly falling."""

    lookups_per_sample: float = 1.0
    """Mean number of ids of a bag."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "count_G", _frozen(np.asarray(self.count_G, np.int64)))
        object.__setattr__(self, "probability_G", _frozen(np.asarray(self.probability_G, np.float64)))
        count_G, probability_G = self.count_G, self.probability_G
        if count_G.ndim != 1 or count_G.shape != probability_G.shape:
            raise ConfigError(
                f"frequencies: expected one probability for each run, got {probability_G.shape} for {count_G.shape}"
            )
        if not 0 < self.lookups_per_sample < math.inf:
            raise ConfigError(
                f"frequencies.lookups_per_sample: expected a finite number > 0, got {self.lookups_per_sample!r}"
            )
        if len(count_G) and (count_G.min() < 1 or float(count_G.sum(dtype=np.float64)) > _MOST_ROWS):
            raise ConfigError(
                f"frequencies: expected runs of at least one row and 2^62 in all, got one of {count_G.min()}"
            )
        if len(count_G) and not (probability_G.min() >= 0 and probability_G.max() <= 1):  # NaN neither
            bad = probability_G[~((probability_G >= 0) & (probability_G <= 1))][0]
            raise ConfigError(f"frequencies: expected probabilities from 0 to 1, got {bad!r}")
        if (np.diff(probability_G) >= 0).any():
            raise ConfigError(
                "frequencies: expected strictly falling probabilities; use Frequencies.from_runs"
            )
        if self.share > 1 + 1e-6:
            raise ConfigError(
                f"frequencies: expected probabilities that add up to at most 1, got {self.share!r}; "
                "they are per row and per lookup"
            )

    @classmethod
    def from_runs(cls, count_G: Any, probability_G: Any, lookups_per_sample: float = 1.0) -> Frequencies:
        """Sort runs of any order; equal probabilities become one run, runs without rows vanish."""
        count, probability = np.asarray(count_G, np.int64), np.asarray(probability_G, np.float64)
        if count.shape != probability.shape or count.ndim != 1 or (count < 0).any():
            raise ConfigError(
                f"frequencies: expected a count >= 0 and a probability for each run, got {count!r} and {probability!r}"
            )
        some = count > 0
        falling, run = np.unique(-probability[some], return_inverse=True)
        merged = np.zeros(len(falling), np.int64)
        np.add.at(merged, run, count[some])
        return cls(merged, -falling, lookups_per_sample)

    @classmethod
    def uniform(cls, rows: int, lookups_per_sample: float = 1.0) -> Frequencies:
        """Make a table whose rows are equally likely."""
        rows = _checked_rows(rows)
        return cls(np.array([rows]), np.array([1 / rows]), lookups_per_sample)

    @classmethod
    def zipf(cls, rows: int, exponent: float, lookups_per_sample: float = 1.0) -> Frequencies:
        """Give row k (from 1) a probability close to ``k ** -exponent``, normalized.

        It is the integral of ``x ** -exponent`` from k - 1/2 to k + 1/2, the law of
        ``laconic.data``'s generator, in closed form, so that the tail costs nothing. Each of the
        first 4,096 rows is a run. Behind them, rows whose places differ by 1 % share their mean
        probability.
        """
        rows = _checked_rows(rows)
        if not 0 <= exponent <= 10:
            raise ConfigError(f"frequencies.zipf: expected an exponent from 0 to 10, got {exponent!r}")
        if exponent == 0:
            return cls.uniform(rows, lookups_per_sample)
        single = np.arange(min(rows, _SINGLE_ROWS) + 1)
        steps = max(math.ceil(math.log(rows / single[-1]) / math.log(_RUN_GROWTH)), 0)
        tail = np.rint(single[-1] * _RUN_GROWTH ** np.arange(1, steps + 1, dtype=np.float64)).astype(np.int64)
        edges = np.concatenate([single, tail[tail < rows], [rows] if rows > single[-1] else []]).astype(
            np.int64
        )
        count = np.diff(edges)
        mass = _power_integral(edges.astype(np.float64) + 0.5, exponent)
        return cls.from_runs(count, mass / mass.sum() / count, lookups_per_sample)

    @cached_property
    def rows(self) -> int:
        """Number of all rows."""
        return int(self.count_G.sum())

    @cached_property
    def share(self) -> float:
        """Share of lookups that hit these rows: 1 for a whole table, 0 for one without lookups."""
        return float(np.sum(self.count_G * self.probability_G))

    def hottest(self, k: int) -> float:
        """Return the share of lookups that hit the ``k`` likeliest rows."""
        return self.cut(k)[0].share

    def cut(self, k: int) -> tuple[Frequencies, Frequencies]:
        """Return the ``k`` likeliest rows, or all if there are fewer, and the others."""
        if k < 0:
            raise ConfigError(f"frequencies: expected a number of rows >= 0, got {k!r}")
        ends = np.cumsum(self.count_G)
        head = np.clip(k - (ends - self.count_G), 0, self.count_G)
        return self._part(head), self._part(self.count_G - head)

    def above(self, probability: float) -> Frequencies:
        """Return the rows that are likelier than this."""
        return self.only(self.probability_G > probability)

    def only(self, wanted_G: NDArray[np.bool_]) -> Frequencies:
        """Return the rows of some runs."""
        return self._part(np.where(wanted_G, self.count_G, 0))

    def _part(self, count_G: Ints) -> Frequencies:
        some = count_G > 0
        return Frequencies(count_G[some], self.probability_G[some], self.lookups_per_sample)


def rate_of_rank(frequencies_T: Sequence[Frequencies], k: int) -> float:
    """Rate that a row must exceed to be among the ``k`` hottest of all tables; 0 if all are.

    Rows of one run are all in or all out, so there may be fewer than ``k`` above it.
    """
    rate_G = np.concatenate([_rate_G(f) for f in frequencies_T])
    count_G = np.concatenate([f.count_G for f in frequencies_T])
    hottest = np.argsort(-rate_G, kind="stable")
    out = np.flatnonzero(np.cumsum(count_G[hottest]) > k)
    return float(rate_G[hottest[out[0]]]) if len(out) else 0.0


def hottest_of_all(
    frequencies_T: Sequence[Frequencies], k: int, least_rate: float = 0.0
) -> tuple[Frequencies, ...]:
    """Return at most ``k`` rows, the hottest of all tables with rates above ``least_rate``."""
    rate = max(rate_of_rank(frequencies_T, k), least_rate)
    return tuple(f.only(_rate_G(f) > rate) for f in frequencies_T)


def _rate_G(frequencies: Frequencies) -> Floats:
    with np.errstate(divide="ignore"):  # a row that every lookup hits
        return -frequencies.lookups_per_sample * np.log1p(-np.minimum(frequencies.probability_G, 1.0))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array = array.copy()
    array.flags.writeable = False
    return array


def _checked_rows(rows: int) -> int:
    if not 1 <= rows <= _MOST_ROWS:
        raise ConfigError(f"frequencies: expected 1 to 2^62 rows, got {rows!r}")
    return int(rows)


def _power_integral(edges: Floats, exponent: float) -> Floats:
    """Integrate ``x ** -exponent`` from edge to edge, without cancellation near exponent 1."""
    begin = edges[:-1]
    log_ratio = np.log(edges[1:] / begin)
    power = 1.0 - exponent
    if power == 0.0:
        return log_ratio
    integral: Floats = begin**power * np.expm1(power * log_ratio) / power
    return integral
