"""Rows of a cold table in the order in which memory should have them, and what each saves.

The k most frequent rows, if memory has them, save a step S(k) reads of the file, and as many writes. S is concave: the rarer a row,
the less it saves. A linear program needs it as segments. These are those of some of its tangents, which meet S where
they touch it and are above it elsewhere, so that what the program finds is a bound for every number of rows.

Shape legend: ``S`` segments.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from laconic.cost.needed_rows import NeededRows

__all__ = ["kept_segments"]

Floats = NDArray[np.float64]
_FLATTER = 1e-9  # slopes that differ by less of the steepest one are the same


def kept_segments(needed: NeededRows, most: int, tangents: int) -> tuple[Floats, Floats]:
    """Rows of each segment, ``most`` in all, and reads that a row of it saves; the most frequent rows first.

    At most so many ``tangents``. Half of them touch S where numbers of rows differ by a constant factor, for steep laws, and
    half by a constant number, for flat ones.
    """
    if most < 1:
        return np.empty(0), np.empty(0)
    half = tangents // 2
    at_S = np.unique(np.rint([*np.geomspace(1, most, half), *np.linspace(1, most, half)])) - 1
    read_S, next_S = (np.array([needed.touched(k) for k in rows.tolist()]) for rows in (at_S, at_S + 1))
    slope_S = read_S - next_S
    some = np.diff(slope_S, prepend=np.inf) < -_FLATTER * slope_S[0]
    at_S, slope_S, saved_S = at_S[some], slope_S[some], (read_S[0] - read_S)[some]
    begin_S = saved_S - slope_S * at_S  # where tangents leave the axis
    meet = np.clip(-np.diff(begin_S) / np.diff(slope_S), at_S[:-1], at_S[1:])
    return np.diff(np.concatenate([[0.0], meet, [float(most)]])), slope_S
