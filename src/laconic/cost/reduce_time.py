"""Which way of summing takes least, by what the link and the kernels were measured to do.

::

    seconds = rounds x latency + bytes / bandwidth
            + words read / speed of compacting + words summed / speed of adding

Bytes are those that the busiest rank sends; all of a round's bytes must be there before the next
begins, so nothing overlaps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import log2

from laconic.cost.link import Link, ring_bytes

__all__ = ["Addends", "Choice", "KernelSpeeds", "choose", "reduce_s"]


@dataclass(frozen=True, slots=True)
class KernelSpeeds:
    """What kernels were measured to do on one core, in words of four bytes a second."""

    read: float
    """Words of a tensor looked at."""
    move: float
    """Words that are there: compacted, decoded and added."""
    add: float
    """Words of dense tensors added."""


@dataclass(frozen=True, slots=True)
class Addends:
    """The tensors that are summed, one of each rank."""

    words: int
    """Numbers in each tensor, zeros included."""
    ranks: int
    item_bytes: int = 4
    own: float = 1.0
    """Share of the words that is there on one rank."""
    union: float = 1.0
    """Share that is there on any rank."""
    unit: int = 1
    """Neighboring words that stand or fall together."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A method, and how many words stand or fall together in it."""

    method: str
    unit: int = 1
    seconds: float = 0.0


def choose(
    dense: Addends, full_U: Iterable[tuple[int, float, float]], link: Link, speeds: KernelSpeeds
) -> Choice:
    """Take the best of all methods and units; ``full_U`` has every unit, and shares for it."""
    sparse = [replace(dense, unit=unit, own=own, union=union) for unit, own, union in full_U]
    tried = [("dense", dense), *((method, x) for method in ("gather", "owners") for x in sparse)]
    choices = [Choice(method, x.unit, reduce_s(method, x, link, speeds)) for method, x in tried]
    return min(choices, key=lambda choice: choice.seconds)


def reduce_s(method: str, x: Addends, link: Link, speeds: KernelSpeeds) -> float:
    """Seconds of one method."""
    others, part = x.ranks - 1, (x.ranks - 1) / x.ranks
    scale = x.item_bytes / 4
    read_s = scale * x.words / speeds.read
    if method == "dense":
        sent, moved_s = ring_bytes(x.words * x.item_bytes, x.ranks), scale * x.words / speeds.add
        return 3 * link.latency_s + sent / link.bytes_per_s + moved_s
    own_words, own_bytes = x.own * x.words, _bytes(x, x.own)
    if method == "gather":
        moved, sent, rounds = own_words * (1 + x.ranks), others * own_bytes, 3
    else:
        moved = own_words * 2 + x.union * x.words * (1 + 1 / x.ranks)
        sent, rounds = part * (own_bytes + _bytes(x, x.union)), 6
    return read_s + rounds * link.latency_s + sent / link.bytes_per_s + scale * moved / speeds.move


def _bytes(x: Addends, share: float) -> float:
    """Bytes of words that are there, and of an index: the entropy, and half a bit for each unit."""
    words = share * x.words * x.item_bytes
    if share <= 0 or share >= 1:
        return words
    bits = -share * log2(share) - (1 - share) * log2(1 - share) + 0.5 * share
    return words + x.words / x.unit * min(bits, 1.0) / 8
