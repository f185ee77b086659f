"""How sure a ratio is: the mean of paired ratios and its 95 % interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

__all__ = ["paired_ratios", "ratios_of_turns"]

# two-sided 95 % of Student's t for 1, 2, ... degrees of freedom
_T95 = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
)


def paired_ratios(
    ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]
) -> tuple[float, float, float]:
    """Mean and interval of ours / theirs, each pair the medians of one round."""
    ratios = [statistics.median(a) / statistics.median(b) for a, b in zip(ours, theirs, strict=True)]
    mean = statistics.fmean(ratios)
    if len(ratios) < 2:
        return mean, math.nan, math.nan
    t = _T95[min(len(ratios) - 1, len(_T95)) - 1]
    half = t * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return mean, mean - half, mean + half


def ratios_of_turns(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Compare the turns that both had: one may have had more of them."""
    both = min(len(ours), len(theirs))
    return paired_ratios([(mean,) for mean in ours[:both]], [(mean,) for mean in theirs[:both]])
