"""The hybrid benchmark trains what it times, with real ranks, and its figures are what they say."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from rich.console import Console

from benchmarks.hybrid import KAGGLE, render, run_hybrid_benchmark, usual_plans
from benchmarks.hybrid_worker import METHODS
from laconic.data import SyntheticSettings
from laconic.exchange.ranks.split_wire import HEADER_BYTES
from laconic.train.settings import ModelSettings

PLAN = replace(
    KAGGLE,
    name="small",
    model=ModelSettings(dim=6, bottom=(31,), top=(65, 33)),
    data=SyntheticSettings(kind="synthetic", cap=50),
    batch=40,
    warmup=1,
    rounds=1,
    steps=1,
)


@pytest.fixture(scope="module")
def rows():
    said: list[str] = []
    found = run_hybrid_benchmark([PLAN], rate_mbit=100, say=said.append, lab=False)
    assert said[-1] == f"{PLAN.name}: timing"
    return {row.method: row for row in found}


def test_every_method_is_timed_on_two_replicas_of_two_parts(rows):
    assert list(rows) == list(METHODS)
    for row in rows.values():
        assert (row.hosts, row.replicas, row.samples, row.rate_mbit) == (4, 2, 40, None)
        assert row.ms > 0
    assert rows["alone"].over_plain is rows["plain"].over_plain is None
    assert min(rows["hybrid"].over_plain[0], rows["rounded"].over_plain[0]) > 0


def test_replicas_stay_equal_where_they_talk(rows):
    assert rows["plain"].equal
    assert rows["hybrid"].equal
    assert rows["rounded"].equal
    assert not rows["alone"].equal


def test_plain_sends_every_activation_and_gradient_once_and_alone_nothing(rows):
    # layers of 31 and 65 go both ways, halves of 6 and 33 home, the input of the top MLP away;
    # gradients come back, so that both ranks together send all of it twice
    widths, messages = 31 + 65 + 3 + 17 + (6 + 27 * 26 // 2), 2 + 2 + 1 + 1 + 1
    assert rows["plain"].bytes_split == 4 * 40 * widths + HEADER_BYTES * messages
    assert rows["plain"].bytes_dense is None
    assert rows["alone"].bytes_split == 0


def test_the_hybrid_sends_about_a_tenth_at_splits(rows):
    values = rows["hybrid"].bytes_split / rows["plain"].bytes_split
    assert 0.03 < values < 0.25
    assert 0 < rows["hybrid"].bytes_dense < rows["hybrid"].bytes_sent_per_host
    assert rows["rounded"].bytes_split < 0.7 * rows["hybrid"].bytes_split


def test_rows_are_shown(rows):
    console = Console(width=140)
    with console.capture() as capture:
        console.print(render(list(rows.values())))
    text = capture.get()
    assert "small: 2 replicas of 2 parts, 40 samples each; 4 hosts, loopback" in text
    assert f"{1 - rows['hybrid'].over_plain[0]:.1%}" in text
    assert set(asdict(rows["plain"])) >= {"communication_share", "bytes_sent_per_host", "over_plain"}


def test_more_rounds_are_measured_in_full():
    usual, full = usual_plans(full=False), usual_plans(full=True)
    assert [3 * plan.rounds for plan in usual] == [plan.rounds for plan in full]
