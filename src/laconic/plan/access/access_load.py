"""What a profile says about a table, as a load for the planner."""

from __future__ import annotations

import numpy as np

from laconic.cost.choice import Choice
from laconic.cost.frequencies import Frequencies
from laconic.cost.id_bytes import IdOrder
from laconic.cost.workload import Coding, TableLoad
from laconic.plan.access.access import TableAccess

__all__ = ["access_load", "hottest_ids", "warm_ids"]

_RANKED = 0.5  # correlation of ids with places in the order of frequency, from which on they count as ranked


def access_load(table: TableAccess, forward: Coding, backward: Coding) -> TableLoad:
    """Make a load of counted lookups; rows of the head, whose ids are known, can be hot or warm."""
    count_G, probability_G = table.probabilities()
    frequencies = Frequencies.from_runs(count_G, probability_G, table.mean_bag or 1.0)
    return TableLoad(
        name=table.name,
        frequencies=frequencies,
        known=len(table.ids_H),
        id_order=_order(table),
        forward=forward,
        backward=backward,
    )


def hottest_ids(table: TableAccess, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Ids of the most frequent rows, ascending."""
    return np.sort(table.ids_H[:count]).astype(np.int64)


def warm_ids(table: TableAccess, choice: Choice, ranks: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Ids of the most frequent rows behind the hot ones, ascending; of a dealt table as many as planned on each rank.

    They may be fewer than planned, where one rank has fewer of the rows whose ids are known.
    """
    ids_H = table.ids_H[choice.hot :].astype(np.int64)
    if choice.kind.sharding != "row":
        return np.sort(ids_H[: choice.warm])
    each = choice.warm // ranks
    return np.sort(np.concatenate([ids_H[ids_H % ranks == rank][:each] for rank in range(ranks)]))


def _order(table: TableAccess) -> IdOrder:
    """Whether frequent rows have small ids; ``ids_H`` is in the order of frequency."""
    ids_H = table.ids_H
    if len(ids_H) < 2:
        return "mixed"
    place_H = np.argsort(np.argsort(ids_H))
    correlation = np.corrcoef(place_H, np.arange(len(ids_H)))[0, 1]
    return "ranked" if correlation > _RANKED else "mixed"
