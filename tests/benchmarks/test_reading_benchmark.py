"""Reading: ranks share samples and bytes, and the same samples are read plainly."""

from __future__ import annotations

import pytest
from rich.console import Console

from benchmarks.reading import render, run_reading_benchmark


@pytest.fixture(scope="module")
def rows():
    return run_reading_benchmark(
        rows=12_800, row_group=100, batch=640, compression="zstd", repeats=1, say=lambda _: None
    )


def test_a_rank_reads_its_share_of_samples_and_bytes(rows):
    assert [row.ranks for row in rows] == [1, 2, 4, 8]
    assert [row.samples for row in rows] == [12_800, 6_400, 3_200, 1_600]
    for row in rows[
        1:
    ]:  # besides its row groups it may need one that it shares with the rank before or after
        assert row.bytes_read <= rows[0].bytes_read * (1 / row.ranks + 2.2 / 128)


def test_what_is_shown_follows_from_what_was_measured(rows):
    for row in rows:
        assert row.rows_per_cpu_s == row.samples / row.cpu_s
        assert row.share_of_plain == row.plain_cpu_s / row.cpu_s > 0


def test_a_table_has_a_line_for_each_number_of_ranks(rows):
    console = Console(width=140, record=True)
    console.print(render(rows))
    assert sum("│" in line for line in console.export_text().splitlines()) == len(rows)
