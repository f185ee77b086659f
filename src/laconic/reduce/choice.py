"""Which way of summing takes least, by what the link and the kernels were measured to do.

::

    seconds = rounds x latency + bytes / bandwidth + words read / speed of compacting + words summed / speed of adding

Bytes are those that the busiest rank sends; all of a round's bytes must be there before the next begins, so
nothing overlaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from laconic.cost.link import Link
from laconic.reduce.sample import UNITS, Fullness

__all__ = ["METHODS", "Choice", "Speeds", "choose", "predict"]

METHODS = ("dense", "gather", "owners")


@dataclass(frozen=True, slots=True)
class Speeds:
    """What kernels were measured to do on one core, in words of four bytes a second."""

    read: float
    """Words of a tensor looked at."""
    move: float
    """Words that are there: compacted, decoded and added."""
    add: float
    """Words of dense tensors added."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A method, and how many words stand or fall together in it."""

    method: str
    unit: int = 1
    seconds: float = 0.0


def choose(words: int, item_bytes: int, ranks: int, fullness: Fullness, link: Link, speeds: Speeds) -> Choice:
    """Take the best of all methods and units."""
    dense = Choice("dense", 1, predict("dense", words, item_bytes, ranks, 1.0, 1.0, 1, link, speeds))
    sparse = [
        Choice(method, unit, predict(method, words, item_bytes, ranks, own, union, unit, link, speeds))
        for method in METHODS[1:]
        for unit, own, union in zip(UNITS, fullness.ranks, fullness.union, strict=True)
    ]
    return min(dense, *sparse, key=lambda choice: choice.seconds)


def predict(
    method: str,
    words: int,
    item_bytes: int,
    ranks: int,
    own: float,
    union: float,
    unit: int,
    link: Link,
    speeds: Speeds,
) -> float:
    """Seconds of one method, for tensors of which a share ``own`` is there on a rank and ``union`` on any."""
    others, part = ranks - 1, (ranks - 1) / ranks
    own_words, union_words = own * words, union * words
    own_bytes = own_words * item_bytes + _index_bytes(words / unit, own)
    union_bytes = union_words * item_bytes + _index_bytes(words / unit, union)
    scale = item_bytes / 4
    read = scale * words / speeds.read
    if method == "dense":
        return (
            link.latency_s * 3 + part * 2 * words * item_bytes / link.bytes_per_s + scale * words / speeds.add
        )
    if method == "gather":
        moved = own_words * (1 + ranks)
        return read + 3 * link.latency_s + others * own_bytes / link.bytes_per_s + scale * moved / speeds.move
    moved = own_words * 2 + union_words * (1 + 1 / ranks)
    sent = part * (own_bytes + union_bytes)
    return read + 6 * link.latency_s + sent / link.bytes_per_s + scale * moved / speeds.move


def _index_bytes(units: float, share: float) -> float:
    """Bytes of an index: about half a bit more than the entropy for every unit that is there."""
    if share <= 0 or share >= 1:
        return 0.0
    bits = -share * log2(share) - (1 - share) * log2(1 - share) + 0.5 * share
    return units * min(bits, 1.0) / 8
