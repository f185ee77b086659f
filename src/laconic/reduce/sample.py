"""How full tensors are, from a look at a few places: alone, together, and in runs.

Every rank looks at the same places and tells which it has; so all know how full each and the union are,
and decide alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.reduce.channel import Channel

__all__ = ["UNITS", "Fullness", "sample_fullness"]

UNITS = (1, 16, 64)
"""Neighboring words that may be there together; the sample tells which fits."""
_RUN, _RUNS = 64, 256  # words of one look, and looks


@dataclass(frozen=True, slots=True)
class Fullness:
    """Shares of units that are there, one number for every unit in ``UNITS``."""

    ranks: tuple[float, ...]
    """Of one rank, on average."""
    union: tuple[float, ...]


def sample_fullness(channel: Channel, x: NDArray[Any]) -> Fullness:
    """Look, and tell the others; one round of messages of 2 kB."""
    there = np.zeros(_RUN * _RUNS, bool)
    if len(x) <= len(there):
        there[: len(x)] = x != 0
        words = len(x)
    else:
        starts = np.arange(_RUNS) * ((len(x) - _RUN) // (_RUNS - 1)) // _RUN * _RUN
        there[:] = (x[(starts[:, None] + np.arange(_RUN)).reshape(-1)]) != 0
        words = len(there)
    bits = np.packbits(there)
    sizes_N = np.full(channel.ranks, len(bits))
    heard = channel.buffer("sample", int(sizes_N.sum()), np.uint8)
    channel.announce_to_all(messages=[channel.to_all(bits)])
    channel.receive(heard, sizes_N)
    all_NW = np.unpackbits(heard.reshape(channel.ranks, -1), axis=1)[:, :words].astype(bool)
    return Fullness(
        tuple(float(np.mean([_share(one_W, unit) for one_W in all_NW])) for unit in UNITS),
        tuple(_share(np.logical_or.reduce(all_NW), unit) for unit in UNITS),
    )


def _share(there_W: NDArray[np.bool_], unit: int) -> float:
    units = np.logical_or.reduceat(there_W, np.arange(0, len(there_W), unit)) if len(there_W) else there_W
    return float(units.mean()) if len(units) else 0.0
