"""Lists of a table's ids, such as a plan has them, checked once for whoever uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.errors import PlanError
from laconic.exchange.tables.table import Table

__all__ = ["checked_ids"]

Ints = NDArray[np.int64]


def checked_ids(kind: str, tables: Sequence[Table], ids: Mapping[str, Any] | None) -> dict[int, Ints]:
    """Ascending ids by the number of their table, of those that have any; ``PlanError`` calls them ``kind`` rows."""
    ids = ids or {}
    names = [table.name for table in tables]
    for name in ids:
        if name not in names:
            raise PlanError(f"{kind} rows: no table {name!r} (known: {', '.join(names)})")
    return {
        t: _checked(f"{kind} rows of table {table.name!r}", table.rows, ids[table.name])
        for t, table in enumerate(tables)
        if table.name in ids and len(ids[table.name])
    }


def _checked(where: str, rows: int, ids: Any) -> Ints:
    ids_R = np.asarray(ids)
    if ids_R.ndim != 1 or ids_R.dtype.kind not in "iu":
        raise PlanError(f"{where}: expected a list of ids, got {ids_R.dtype} of shape {ids_R.shape}")
    ids_R = ids_R.astype(np.int64)
    wrong = ids_R[(ids_R < 0) | (ids_R >= rows)]
    if len(wrong):
        raise PlanError(f"{where}: expected ids below its {rows} rows, got {wrong[0]}; plan again")
    falling = np.flatnonzero(np.diff(ids_R) <= 0)
    if len(falling):
        raise PlanError(
            f"{where}: expected ascending ids, got {ids_R[falling[0] + 1]} after {ids_R[falling[0]]}"
        )
    return ids_R
