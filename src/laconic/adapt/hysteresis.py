"""Which changes pay well enough to be made: noise must not take a table back and forth.

A table moves to another candidate only if that

* saves more than a share of what the table costs now, a tenth or as much as is asked of it;
* does so also with a tenth less and a tenth more computation to hide the wire behind.

Times that are off by up to 5 % do not take a table there and back while the others stay. There needs
``new < 0.9 old`` as measured, so truly ``new / old < 0.9 * 1.05 / 0.95 < 1``, and back needs the contrary. Wire
time and overlap, each off by 5 %, relate within ``(1.05 / 0.95)^2 < 1.1 / 0.9``, so any two reviews share an
overlap at which both ways would have to pay.
"""

from __future__ import annotations

from collections.abc import Sequence

from laconic.cost.link import CodecCost, Link, direction_seconds, total

__all__ = ["MARGIN", "paying_moves"]

MARGIN = 0.1


def paying_moves(
    link: Link,
    now: Sequence[CodecCost],
    wanted: Sequence[CodecCost],
    overlap_s: float,
    shares: Sequence[float],
) -> list[int]:
    """Return the tables that move from what they are ``now`` to what is ``wanted``, in order.

    They move one by one, the largest gain first, each judged with those before it moved. ``shares`` says
    how much of its contribution each must save.
    """
    costs = list(now)
    moved: list[int] = []
    waiting = [t for t, (old, new) in enumerate(zip(now, wanted, strict=True)) if old != new]
    while True:
        gains = {t: _gain(link, costs, t, wanted[t], overlap_s) for t in waiting}
        before = len(moved)
        for t in sorted(waiting, key=lambda t: (-gains[t], t)):
            gain = _gain(link, costs, t, wanted[t], overlap_s)  # after the moves of this round
            if gain > shares[t] * _contribution(link, costs, t, overlap_s):
                costs[t] = wanted[t]
                moved.append(t)
        if len(moved) == before:
            return moved
        waiting = [t for t in waiting if t not in moved]


def _gain(link: Link, costs: Sequence[CodecCost], t: int, new: CodecCost, overlap_s: float) -> float:
    """Least that the step gains by a change of table ``t``, the overlap being off by the margin."""
    after = [*costs[:t], new, *costs[t + 1 :]]
    # a larger overlap hides savings of wire and forgives additions: the least gain is at an end
    return min(
        direction_seconds(link, costs, overlap) - direction_seconds(link, after, overlap)
        for overlap in ((1 - MARGIN) * overlap_s, (1 + MARGIN) * overlap_s)
    )


def _contribution(link: Link, costs: Sequence[CodecCost], t: int, overlap_s: float) -> float:
    """Return the cost of table ``t`` at the margin: its CPU time, and its wire time unless the wire is hidden.

    All of its wire time where any of the direction's shows: that much is uncertain, however little shows.
    """
    hidden = link.seconds(total(costs).bytes_sent) <= (1 - MARGIN) * overlap_s
    return costs[t].cpu_s + (0.0 if hidden else costs[t].bytes_sent / link.bytes_per_s)
