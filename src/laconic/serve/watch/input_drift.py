"""Input drift: histograms of every feature of live requests against those of a reference.

The reference is what the artifact stores, or else the first samples of a deployment. Ids have two
histograms: by their order, which sees other ranges, and by a hash, which sees that other ids have
become frequent. Bags have one of their lengths too. A window has two halves; the older one leaves
when the younger one is full.

The figure is the population stability index, how much a distribution over bins has moved away from
a reference::

    PSI = sum over bins of (p - q) ln(p / q)

Without drift, PSI times ``1 / (1/n + 1/m)`` is distributed as chi square with bins - 1 degrees of
freedom, for n samples now and m in the reference. ``chance`` is what that explains, so that small
windows of many features do not cry wolf.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.data import Schema
from laconic.data.hashing import mix64
from laconic.quantize.formats.features import Histogram, Population
from laconic.serve.query import Query
from laconic.serve.signature import LENGTHS

__all__ = ["Bins", "FeatureFigures", "InputDrift", "chance", "psi"]

Counts = NDArray[np.int64]

_SURE = 5.0
"""Standard deviations: one false alarm in some millions of looks."""

_DENSE_BINS = 10
_ID_BINS = 16
Values = NDArray[Any]


def psi(now_K: Counts, reference_K: Counts) -> float:
    """Return the population stability index of two histograms.

    Half a count is added to every bin, so that an empty one does not make the index infinite.
    """
    p_K = (now_K + 0.5) / (now_K.sum() + 0.5 * now_K.size)
    q_K = (reference_K + 0.5) / (reference_K.sum() + 0.5 * now_K.size)
    return float(((p_K - q_K) * np.log(p_K / q_K)).sum())


def chance(now_K: Counts, reference_K: Counts) -> float:
    """PSI that is hardly ever exceeded without drift.

    It is the quantile of chi square, by the approximation of Wilson and Hilferty.
    """
    freedom = now_K.size - 1
    now, reference = int(now_K.sum()), int(reference_K.sum())
    if freedom < 1 or not now or not reference:
        return math.inf
    spread = 2 / (9 * freedom)
    quantile = freedom * (1 - spread + _SURE * math.sqrt(spread)) ** 3
    return quantile * (1 / now + 1 / reference)


class Bins:
    """Bins of about equal mass in the reference, by value; a value that is frequent has its own."""

    def __init__(self, edges: NDArray[Any], reference_K: Counts) -> None:
        self.edges, self.reference_K = edges, reference_K

    @classmethod
    def learnt(cls, reference_N: NDArray[Any], most: int) -> Bins:
        """Make at most ``most`` bins from values of the reference."""
        wanted = np.linspace(0, 1, most + 1)[1:-1]
        edges = (
            np.unique(np.quantile(reference_N, wanted, method="lower")) if reference_N.size else np.empty(0)
        )
        return cls(edges, _histogram(edges, reference_N))

    def count(self, values_N: NDArray[Any]) -> Counts:
        """Count values in these bins."""
        return _histogram(self.edges, values_N)


def _histogram(edges: NDArray[Any], values_N: NDArray[Any]) -> Counts:
    return np.bincount(np.searchsorted(edges, values_N, side="right"), minlength=edges.size + 1)


@dataclass(frozen=True, slots=True)
class FeatureFigures:
    """How far one feature has moved in one window."""

    psi: float
    chance: float
    """PSI that chance explains."""

    unknown: float
    """Increase of the share of unknown ids over the reference."""

    unknown_chance: float
    """Increase of that share that chance explains."""


class InputDrift:
    """Learns a reference, then compares; ``add`` returns figures when half a window is full."""

    def __init__(
        self, schema: Schema, *, reference: int, window: int, population: Population | None = None
    ) -> None:
        """Learn from the first ``reference`` samples, unless the ``population`` is known."""
        self._schema = schema
        self._needed, self._half = reference, max(1, window // 2)
        self._learning: list[dict[str, Values]] | None = []
        self._learnt = 0
        self._bins: dict[str, Bins] = {}
        self._older: dict[str, Counts] = {}
        self._younger: dict[str, Counts] = {}
        self._samples = 0
        self._unknown_reference: dict[str, float] = {}
        self._unknown = {name: np.zeros(2, dtype=np.int64) for name in self._table_names()}
        self._unknown_older = {name: np.zeros(2, dtype=np.int64) for name in self._table_names()}
        if population is not None:
            self._know(population)

    @property
    def learning(self) -> bool:
        """Whether there is no reference yet."""
        return self._learning is not None

    def population(self) -> Population:
        """Return the reference that was learnt."""
        views = {
            view: Histogram(edges=tuple(bins.edges.tolist()), counts=tuple(bins.reference_K.tolist()))
            for view, bins in self._bins.items()
        }
        return Population(views=views, unknown=self._unknown_reference)

    def add(self, query: Query) -> dict[str, FeatureFigures] | None:
        """Count a batch; return figures by feature when half a window is full, else None."""
        views = self._views(query)
        for table, name in enumerate(self._table_names()):
            self._unknown[name] += (query.unknown_T[table], query.lengths_TB[table].sum())
        if self._learning is not None:
            self._learning.append(views)
            self._learnt += query.samples
            if self._learnt >= self._needed:
                self._learn(self._learning)
            return None
        for view, values in views.items():
            self._younger[view] = self._younger[view] + self._bins[view].count(values)
        self._samples += query.samples
        if self._samples < self._half:
            return None
        figures = self._figures()
        self._older, self._younger, self._samples = self._younger, self._no_counts(), 0
        self._unknown_older = self._unknown
        self._unknown = {name: np.zeros(2, dtype=np.int64) for name in self._table_names()}
        return figures

    def _table_names(self) -> list[str]:
        return [feature.name for feature in self._schema.categorical]

    def _views(self, query: Query) -> dict[str, Values]:
        """Return the values to count, by name of their view; see ``quantize.formats.features``."""
        views: dict[str, Values] = {
            name: query.dense_BF[:, number] for number, name in enumerate(self._schema.dense)
        }
        for table, feature in enumerate(self._schema.categorical):
            ids_L = query.ids_of(table)
            views[feature.name] = ids_L
            views[f"{feature.name}/hash"] = (mix64(ids_L.astype(np.uint64)) >> np.uint64(60)).astype(np.int64)
            if feature.bag:
                views[f"{feature.name}{LENGTHS}"] = query.lengths_TB[table]
        return views

    def _learn(self, batches: list[dict[str, Values]]) -> None:
        for view in batches[0]:
            values_N = np.concatenate([batch[view] for batch in batches])
            dense = view in self._schema.dense
            self._bins[view] = Bins.learnt(values_N, _DENSE_BINS if dense else _ID_BINS)
        for name, (unknown, ids) in self._unknown.items():
            self._unknown_reference[name] = int(unknown) / max(1, int(ids))
            self._unknown[name] = np.zeros(2, dtype=np.int64)
        self._older, self._younger, self._learning = self._no_counts(), self._no_counts(), None

    def _know(self, population: Population) -> None:
        for view, histogram in population.views.items():
            self._bins[view] = Bins(np.array(histogram.edges, float), np.array(histogram.counts, np.int64))
        self._unknown_reference = dict(population.unknown)
        self._older, self._younger, self._learning = self._no_counts(), self._no_counts(), None

    def _no_counts(self) -> dict[str, Counts]:
        return {view: np.zeros_like(bins.reference_K) for view, bins in self._bins.items()}

    def _figures(self) -> dict[str, FeatureFigures]:
        """Let the view that has moved most speak for its feature."""
        figures: dict[str, FeatureFigures] = {}
        for view, bins in self._bins.items():
            name = view.partition("/")[0]
            now_K = self._older[view] + self._younger[view]
            found = FeatureFigures(
                psi(now_K, bins.reference_K), chance(now_K, bins.reference_K), *self._unknown_figures(name)
            )
            if name not in figures or found.psi - found.chance > figures[name].psi - figures[name].chance:
                figures[name] = found
        return figures

    def _unknown_figures(self, name: str) -> tuple[float, float]:
        if name not in self._unknown:
            return 0.0, 0.0
        unknown, ids = (int(count) for count in self._unknown[name] + self._unknown_older[name])
        share = unknown / max(1, ids)
        deviation = (share * (1 - share) / max(1, ids)) ** 0.5
        return share - self._unknown_reference[name], 4 * deviation
