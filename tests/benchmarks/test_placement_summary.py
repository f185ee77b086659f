"""What the placement benchmark comes to, on figures that are known."""

from __future__ import annotations

import pytest

from benchmarks.placement.benchmark import summarize
from benchmarks.placement.case import Row


def timed(placement: str, predicted: float | None, turns: tuple[float, ...], codec: str = "exact") -> Row:
    return Row(
        kind="time",
        data="d",
        hosts=2,
        rate_mbit=100.0,
        placement=placement,
        codec=codec,
        predicted_ms=predicted,
        measured_ms=min(turns),
        turn_ms=turns,
        planned_over=(0.9, 0.8, 1.0) if placement == "row" else None,
    )


ROWS = [
    Row(
        kind="bytes",
        data="d",
        hosts=2,
        placement="row",
        codec="exact",
        predicted_bytes=97,
        measured_bytes=100,
    ),
    timed("alone", None, (10.0, 10.0)),
    timed("plain", None, (100.0, 101.0), codec="plain"),
    timed("planned", 44.0, (40.0, 41.0, 40.5)),
    timed("row", 60.0, (50.0, 50.5, 51.0)),
    timed("table", 56.0, (70.0, 71.0, 70.5)),
    timed("planned_every_8", 40.0, (30.0, 30.5)),
    timed("planned", 20.0, (20.0, 30.0, 40.0), codec="coded"),
    timed("row", 20.0, (40.0, 30.0, 20.0), codec="coded"),
]


def test_errors_and_ranks_are_those_of_the_figures() -> None:
    summary = summarize(ROWS)

    assert summary.bytes_error == pytest.approx(0.03)
    assert summary.predictions == 6
    assert summary.worst_error == pytest.approx(1 / 3)  # every 8: 40 for 30
    assert summary.median_error == pytest.approx((0.1 + 0.2) / 2)
    # the coded ones differ by luck alone; all six pairs of the others differ,
    # and table was predicted to be faster than row
    assert (summary.pairs, summary.ranked_right) == (6, 5)


def test_nothing_measured_comes_to_nothing() -> None:
    assert summarize([]).pairs == 0
