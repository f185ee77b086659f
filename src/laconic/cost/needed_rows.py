"""Rows of a table that a rank needs in a step, how many of them are among its k hottest, and what an id takes.

Rows are in order of frequency, so the k hottest are the first runs and a part of the next, whose rows are alike:
everything is a table of running sums. Shape legend: ``G`` runs of equally likely rows.
"""

from __future__ import annotations

import numpy as np

from laconic.cost.distinct import needed_G
from laconic.cost.id_bytes import EMPTY_LIST_BYTES, sorted_ids_bytes
from laconic.cost.part import Holding, Part
from laconic.cost.pooled_ids import bag_lengths_bytes, pooled_ids_bytes
from laconic.cost.workload import TableLoad, Workload

__all__ = ["NeededRows"]


class NeededRows:
    """Of one table and one rank."""

    def __init__(self, table: TableLoad, workload: Workload, ranks: int) -> None:
        frequencies, every = table.frequencies, workload.hot_every
        self._shares = ((True, 1 / ranks), (False, 1.0))
        self.lookups = workload.batch * frequencies.lookups_per_sample * frequencies.share
        """Ids of a batch, repeated ones included."""
        count_G = frequencies.count_G.astype(np.float64)
        needed = needed_G(frequencies, self.lookups, table.correlation)
        between = needed_G(frequencies, self.lookups * every, table.correlation) / every
        touched = needed_G(frequencies, self.lookups * ranks, table.correlation)
        united = needed_G(frequencies, self.lookups * ranks * every, table.correlation) / every
        # that neighboring batches have rows in common beyond chance is not accounted for
        unchanged = needed * (1 - touched)
        self._ends, self._needed, self._synchronized, self._touched, self._united, self._unchanged = (
            np.concatenate([[0.0], np.cumsum(x)])
            for x in (
                count_G,
                *(count_G * each_G for each_G in (needed, between, touched, united, unchanged)),
            )
        )
        self.distinct = float(self._needed[-1])
        """Rows that a batch needs."""
        # lists of hot rows, and of rows that are left, are coded about as well as that of all
        self._id_bytes = {
            split: 8.0
            if not workload.coded_ids
            else _each(
                sorted_ids_bytes(count_G * share, needed, table.id_order) + EMPTY_LIST_BYTES,
                self.distinct * share,
            )
            for split, share in self._shares
        }
        part = Part(
            table=table.name,
            frequencies=frequencies,
            holding=Holding.dealt(ranks),
            dim=workload.dim,
            id_order=table.id_order,
        )
        self._pooled_bytes = {
            split: 0.0
            if not self.lookups
            else pooled_ids_bytes(part, workload.batch, share, workload.coded_ids)
            + bag_lengths_bytes(part, workload.batch, share, workload.coded_ids)
            for split, share in self._shares
        }

    def id_bytes(self, *, split: bool) -> float:
        """Of an id in a list of distinct ones; ``split``: of one rank's share of the rows."""
        return self._id_bytes[split]

    def pooled_bytes(self, *, split: bool) -> float:
        """Of all ids of a batch and the lengths of their bags; ``split``: one rank's share."""
        return self._pooled_bytes[split]

    def hot(self, k: float) -> float:
        """Distinct rows of a batch that are among the k hottest."""
        return float(np.interp(k, self._ends, self._needed))

    def synchronized(self, k: float) -> float:
        """Gradients of the k hottest rows that a rank sends to each other one, per step."""
        return float(np.interp(k, self._ends, self._synchronized))

    def united(self, k: float) -> float:
        """Rows among the k hottest that all ranks together have gradients of, per step."""
        return float(np.interp(k, self._ends, self._united))

    def unchanged(self, k: float) -> float:
        """Distinct rows of a batch, but for the k hottest, that no rank needed in the step before."""
        return float(self._unchanged[-1] - np.interp(k, self._ends, self._unchanged))

    def touched(self, k: float) -> float:
        """Distinct rows that all ranks together need, but for the k hottest."""
        return float(self._touched[-1] - np.interp(k, self._ends, self._touched))


def _each(nbytes: float, ids: float) -> float:
    return nbytes / ids if ids else 0.0
