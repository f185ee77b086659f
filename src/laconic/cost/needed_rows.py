"""Expected number of rows that a rank needs in a step, hot rows among them, and bytes of ids.

``b`` independent lookups miss a row of probability ``p`` with probability ``(1 - p) ** b``, so::

    q = 1 - (1 - p) ** b          it is needed
    E[U] = sum of q over rows     distinct rows

Lookups of real batches are not quite independent: bags repeat an id, neighbors in time share ids.
We describe that by one measured number, the *correlation* c: the batch needs as many distinct rows
as ``b / c`` independent lookups would. 1 is independence; below 1 a batch is more diverse than
chance, as one drawn without replacement. The assumption is that one c serves all rows of a table,
hot or not, and all batch sizes near the one that was measured. ``docs/papers/avoidance.md`` has the
proofs, and the errors on real data.

Rows are in order of frequency, so the k hottest are the first runs and a part of the next, whose
rows are alike: everything is a table of running sums. Shape legend: ``G`` runs of equally likely
rows.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from laconic.cost.frequencies import Frequencies
from laconic.cost.id_bytes import pooled_bytes, sorted_ids_bytes
from laconic.cost.workload import TableLoad, Workload
from laconic.errors import ConfigError

__all__ = ["NeededRows", "distinct_rows", "needed_G", "sum_count_bytes"]

Floats = NDArray[np.float64]


def needed_G(frequencies: Frequencies, lookups: float, correlation: float = 1.0) -> Floats:
    """Return the probability that ``lookups`` lookups hit a given row of each run."""
    if not (lookups >= 0 and 0 < correlation < math.inf):  # NaN neither
        raise ConfigError(
            f"distinct: expected lookups >= 0 and a correlation > 0, got {lookups!r} and {correlation!r}"
        )
    if lookups == 0:
        return np.zeros(len(frequencies.count_G))
    with np.errstate(divide="ignore"):  # a row that every lookup hits
        log_missed = np.log1p(-np.minimum(frequencies.probability_G, 1.0))
    needed: Floats = -np.expm1(lookups / correlation * log_missed)
    return needed


def distinct_rows(frequencies: Frequencies, lookups: float, correlation: float = 1.0) -> float:
    """Return E[U], the expected number of distinct rows."""
    return float(np.sum(frequencies.count_G * needed_G(frequencies, lookups, correlation)))


def sum_count_bytes(ranks: int) -> float:
    """Return about the bytes of how many ranks' gradients a sum has.

    Where half of them have one, it is as random as a toss of as many coins.
    """
    return (1.5 + 0.5 * math.log2(ranks)) / 8


class NeededRows:
    """Numbers of rows of one table that one rank needs in a step."""

    def __init__(self, table: TableLoad, workload: Workload, ranks: int) -> None:
        frequencies, every = table.frequencies, workload.hot_every
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
        order, coded = table.id_order, workload.coded_ids
        summed, summed_ids = float(self._touched[-1]) / ranks, count_G / ranks
        self.sum_id_bytes = 0.0
        """Bytes of the id of a row whose gradients were summed, and of how many they are."""
        if summed:
            self.sum_id_bytes = sorted_ids_bytes(summed_ids, touched, order) / summed + sum_count_bytes(ranks)
        self._id_bytes, self._pooled_bytes = {}, {}
        for row_wise, share in ((True, 1 / ranks), (False, 1.0)):
            # lists of hot rows, and of rows that are left, are coded about as well as that of all
            ids = self.distinct * share
            nbytes = sorted_ids_bytes(count_G * share, needed, order) if coded else 8 * ids
            self._id_bytes[row_wise] = nbytes / ids if ids else 0.0
            self._pooled_bytes[row_wise] = (
                pooled_bytes(frequencies, order, workload.batch, share, coded=coded) if self.lookups else 0.0
            )

    def id_bytes(self, *, row_wise: bool) -> float:
        """Return bytes of an id in a list of distinct ones, of all rows or of a rank's share."""
        return self._id_bytes[row_wise]

    def pooled_bytes(self, *, row_wise: bool) -> float:
        """Return bytes of a batch's ids and bags' lengths, for all rows or for a rank's share."""
        return self._pooled_bytes[row_wise]

    def hot(self, k: float) -> float:
        """Return the number of distinct rows of a batch that are among the k hottest."""
        return float(np.interp(k, self._ends, self._needed))

    def synchronized(self, k: float) -> float:
        """Return the number of gradients of the k hottest rows that a rank sends another one."""
        return float(np.interp(k, self._ends, self._synchronized))

    def united(self, k: float) -> float:
        """Return the number of the k hottest rows that any rank has a gradient of, per step."""
        return float(np.interp(k, self._ends, self._united))

    def unchanged(self, k: float) -> float:
        """Return the number of a batch's rows, but the k hottest, unchanged by the step before."""
        return float(self._unchanged[-1] - np.interp(k, self._ends, self._unchanged))

    def touched(self, k: float) -> float:
        """Return the number of distinct rows that all ranks together need, but the k hottest."""
        return float(self._touched[-1] - np.interp(k, self._ends, self._touched))
