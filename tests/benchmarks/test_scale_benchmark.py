"""Growth with ranks: an echo stands for them, and a rank needs few sockets."""

from __future__ import annotations

import pytest
from rich.console import Console

from benchmarks.scale import render, run_scale_benchmark
from laconic.plan.rank_needs import rank_needs


@pytest.fixture(scope="module")
def rows():
    return run_scale_benchmark(
        real=[3], echoed=[3, 64], tables=5, batch=64, replicate_below=0, say=lambda _: None
    )


def found(rows, ranks, method, *, real):
    (row,) = (row for row in rows if (row.ranks, row.method, row.real) == (ranks, method, real))
    return row


def test_an_echo_sends_what_real_ranks_send(rows):
    real, echo = (found(rows, 3, "laconic", real=real) for real in (True, False))
    assert echo.bytes == pytest.approx(real.bytes, rel=0.1)
    assert echo.announcement_bytes == pytest.approx(real.announcement_bytes, rel=0.2)


def test_fewer_bytes_than_plain_travel_on_many_ranks_too(rows):
    plain, ours = (found(rows, 64, method, real=False) for method in ("plain", "laconic"))
    assert ours.bytes < plain.bytes


def test_a_rank_has_two_sockets_for_each_other_one_at_most(rows):
    assert found(rows, 3, "laconic", real=True).descriptors <= rank_needs(3).descriptors + 5


def test_a_table_shows_both_ways_and_whether_ranks_were_there(rows):
    console = Console(width=140, record=True)
    console.print(render(rows))
    text = console.export_text()
    assert "5 tables of dimension 64, 64 samples a rank" in text
    assert [("yes" in line, "echo" in line) for line in text.splitlines() if "│" in line] == [
        (True, False),
        (False, True),
        (False, True),
    ]
