"""What a direction of a step takes: encode everything, move it, decode everything.

All tables of a direction are encoded in one call, travel in one message per peer and are decoded in one
call. The rest of the step computes meanwhile, for ``overlap_s`` seconds, and hides that much of the wire::

    seconds = CPU + max(0, wire - overlap)      CPU  = encode + decode, summed over tables
                                                wire = latency + bytes / bandwidth

Encoding and decoding are never hidden: they use the cores that the computation would use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from laconic.errors import ConfigError

__all__ = ["CodecCost", "Link", "cheapest", "direction_seconds", "total"]

_LONGEST_FRONT = 1024  # 26 tables as different as can be need about 600 points and 15 ms


@dataclass(frozen=True, slots=True)
class Link:
    """What carries bytes from one rank to all others."""

    latency_s: float
    """Of a message without bytes."""

    bytes_per_s: float
    """That leave the rank, for all others together."""

    def __post_init__(self) -> None:
        if not (0 <= self.latency_s < math.inf and 0 < self.bytes_per_s < math.inf):
            raise ConfigError(
                f"link: expected a latency >= 0 and a bandwidth > 0, both finite, got {self.latency_s!r} s "
                f"and {self.bytes_per_s!r} bytes/s; measure it again"
            )

    def seconds(self, nbytes: float) -> float:
        """Time until the last of these bytes has arrived."""
        return self.latency_s + nbytes / self.bytes_per_s


@dataclass(frozen=True, slots=True)
class CodecCost:
    """What one rank spends in a step on one table in one direction."""

    encode_s: float
    decode_s: float
    bytes_sent: float

    def __post_init__(self) -> None:
        if not all(0 <= number < math.inf for number in (self.encode_s, self.decode_s, self.bytes_sent)):
            raise ConfigError(
                f"codec cost: expected finite numbers >= 0, got {self.encode_s!r} s, {self.decode_s!r} s "
                f"and {self.bytes_sent!r} bytes; measure it again"
            )

    @property
    def cpu_s(self) -> float:
        """Encoding and decoding."""
        return self.encode_s + self.decode_s


def total(chosen: Iterable[CodecCost]) -> CodecCost:
    """Return the cost of all tables together."""
    costs = list(chosen)
    return CodecCost(
        math.fsum(cost.encode_s for cost in costs),
        math.fsum(cost.decode_s for cost in costs),
        math.fsum(cost.bytes_sent for cost in costs),
    )


def direction_seconds(link: Link, chosen: Iterable[CodecCost], overlap_s: float = 0.0) -> float:
    """Predict what a direction adds to the step."""
    cost = total(chosen)
    return cost.cpu_s + max(0.0, link.seconds(cost.bytes_sent) - overlap_s)


def cheapest(link: Link, tables: Sequence[Sequence[CodecCost]], overlap_s: float = 0.0) -> tuple[int, ...]:
    """Choose one candidate of each table so that the direction adds least to the step.

    ``seconds`` is the larger of ``CPU`` and ``CPU + wire - overlap``, and either is a sum over tables, so
    the choice that makes one of them least is found table by table. No choice is below that, so it is the
    best of all

    * if the link is the bottleneck: least CPU + wire, where even then nothing is left to hide behind;
    * if computation is: least CPU, where even then all of the wire is hidden.

    In between tables compete for the overlap, and the answer is on the front of choices that no other beats
    in both CPU and bytes, which grows table by table. Exact until the front exceeds 1024 points; then an
    even selection of them goes on. Ties go to the smaller index.
    """
    for number, table in enumerate(tables):
        if not table:
            raise ConfigError(f"cost: expected at least one candidate for table {number}, got none")
    exposed = _choose(
        tables, [[cost.cpu_s + cost.bytes_sent / link.bytes_per_s for cost in t] for t in tables]
    )
    if link.seconds(_bytes(tables, exposed)) >= overlap_s:
        return exposed
    hidden = _choose(tables, [[cost.cpu_s for cost in table] for table in tables])
    if link.seconds(_bytes(tables, hidden)) <= overlap_s:
        return hidden
    best = min(_front(tables), key=lambda p: p.cpu_s + max(0.0, link.seconds(p.bytes_sent) - overlap_s))
    return best.chosen()


class _Point(NamedTuple):
    """A choice for the first tables."""

    cpu_s: float
    bytes_sent: float
    last: int
    before: _Point | None

    def chosen(self) -> tuple[int, ...]:
        point, indices = self, []
        while point.before is not None:
            indices.append(point.last)
            point = point.before
        return tuple(reversed(indices))


def _front(tables: Sequence[Sequence[CodecCost]]) -> list[_Point]:
    """Choices that no other beats, by rising CPU and falling bytes."""
    front = [_Point(0.0, 0.0, 0, None)]
    for table in tables:
        grown = [
            _Point(point.cpu_s + cost.cpu_s, point.bytes_sent + cost.bytes_sent, index, point)
            for point in front
            for index, cost in enumerate(table)
        ]
        grown.sort(key=lambda point: point[:2])
        front = grown[:1]
        for point in grown[1:]:
            if point.bytes_sent < front[-1].bytes_sent:
                front.append(point)
        if len(front) > _LONGEST_FRONT:
            last = len(front) - 1
            front = [front[number * last // (_LONGEST_FRONT - 1)] for number in range(_LONGEST_FRONT)]
    return front


def _choose(tables: Sequence[Sequence[CodecCost]], prices: Sequence[Sequence[float]]) -> tuple[int, ...]:
    """Take the least price of each table; of equals the fewest bytes."""
    return tuple(
        min(range(len(table)), key=lambda index: (price[index], table[index].bytes_sent))
        for table, price in zip(tables, prices, strict=True)
    )


def _bytes(tables: Sequence[Sequence[CodecCost]], chosen: Sequence[int]) -> float:
    return math.fsum(table[index].bytes_sent for table, index in zip(tables, chosen, strict=True))
