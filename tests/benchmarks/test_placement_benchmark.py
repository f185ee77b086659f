"""The placement benchmark, small: bytes are predicted, and every contender is timed."""

from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from benchmarks.placement.benchmark import render, time_placements
from benchmarks.placement.case import Case, Row
from benchmarks.placement.engine import DenseCost, Engine, Links, Turns, fit_links
from benchmarks.placement.prediction import WORST, measure_traffic, simulate_bytes, simulate_times
from benchmarks.placement.worker import Sends, leaders
from laconic.data import SyntheticSettings
from laconic.train.settings import ModelSettings


@pytest.fixture
def case():
    data = SyntheticSettings(kind="synthetic", rows=(2000, 1500, 1200, 7), samples=1 << 14)
    return Case("small", data, model=ModelSettings(dim=64, bottom=(32,), top=(32,)))


def test_predicted_bytes_are_those_of_a_rehearsal(case):
    rows = measure_traffic([case], [2, 3], steps=4, say=lambda _: None)
    assert {(row.hosts, row.placement, row.direction) for row in rows} == {
        (hosts, placement, direction)
        for hosts in (2, 3)
        for placement in ("table", "table_rows", "row", "small_replicated", "threshold")
        for direction in ("ids", "forward", "backward", WORST)
    }
    for row in rows:
        if (
            row.direction != "ids"
        ):  # which of so few rows are few bytes, and headers count; also where copies are
            rel = 0.1 if row.direction == WORST else 0.05
            # where a rank has nothing for another, a head is smaller than reckoned
            assert row.predicted_bytes == pytest.approx(row.measured_bytes, rel=rel, abs=20 * row.hosts)
    simulated = simulate_bytes([case], rows)
    assert [(row.hosts, row.placement) for row in simulated] == [
        (2, "none"),
        (2, "dedup"),
        (3, "none"),
        (3, "dedup"),
    ]
    for row in simulated:
        assert row.predicted_bytes == pytest.approx(row.measured_bytes, rel=0.05)


@pytest.mark.parametrize(("slope", "hidden_ms", "k"), [(1.0, 32.0, 9.0), (1.15, 0.0, 4.0), (1.0, 40.0, -6.0)])
def test_links_are_fitted_as_they_were_planted(slope, hidden_ms, k):
    """Rows and dense gradients of a large and a small codec, at two rates."""
    rows, dense = np.array([110.0, 11.0, 27.0, 3.0]), np.array([83.0, 24.0, 62.0, 6.0])

    def waits(rows, dense, slope, hidden_ms, k):
        return slope * rows + np.maximum(slope * dense - hidden_ms, 0) + k

    waited = waits(rows, dense, slope, hidden_ms, k)
    found = fit_links(np.array([rows, dense, waited, 80 + waited]).T, alone_ms=80.0)
    # between what was measured: below, a step that hides more and waits longer would be the same
    others = np.array([80.0, 5.0, 60.0, 12.0]), np.array([70.0, 30.0, 10.0, 40.0])
    fitted = (1 / found.efficiency, 80 * found.dense_overlap, 6e-3 * found.latency_us - 80 * found.overlap)
    assert waits(*others, *fitted) == pytest.approx(waits(*others, slope, hidden_ms, k), abs=1.5)


def timed(placement, codec, ms):
    return Row(
        kind="time",
        data="small",
        hosts=2,
        rate_mbit=100.0,
        placement=placement,
        codec=codec,
        measured_ms=ms,
        measured_bytes=7.0,
    )


def test_the_simulator_is_told_computing_links_and_codecs_and_nothing_of_what_placements_took(case):
    dense = {
        "exact": DenseCost(2e6, 0.0),
        "lossless": DenseCost(1e6, 0.003),
        "levels": DenseCost(0.25e6, 0.008),
    }
    engine = Engine(0.0, Links(), Links(), dense, {"lossless": (1.0, 1.0), "bounded": (1.0, 1.0)})
    places = [("plain", "plain"), ("row", "exact"), ("row", "coded")]
    found = [timed("alone", "exact", 20.0), *(timed(*place, 1.0) for place in places)]
    exact = Sends(dense="lossless")
    rows = simulate_times(case, engine, exact, found)
    assert [(row.placement, row.codec) for row in rows] == [
        ("none", "plain"),
        ("dedup + dense", "exact"),
        ("dedup + bounded + dense", "coded"),
    ]
    assert {(row.kind, row.hosts, row.rate_mbit, row.measured_ms) for row in rows} == {
        ("simulated", 2, 100.0, 1.0)
    }
    _, lossless, coded = rows
    wire_ms = 8e3 * lossless.predicted_bytes / (100e6 * 1448 / 1514)
    beside_ms = 0.4 * 20  # of the backward pass
    assert lossless.predicted_ms == pytest.approx(20 + 3 + wire_ms - beside_ms, abs=0.3)  # rounds
    assert coded.predicted_bytes < lossless.predicted_bytes - 0.75e6
    again = simulate_times(case, engine, exact, [replace(row, measured_ms=20.0) for row in found])
    assert [row.predicted_ms for row in again] == [row.predicted_ms for row in rows]
    assert [row.codec for row in simulate_times(case, engine, exact, found[:2])] == ["plain"]


def test_what_is_exact_is_coded_where_that_is_predicted_to_pay(case):
    dense = {"exact": DenseCost(2.4e6, 0.0), "lossless": DenseCost(1.2e6, 0.004)}
    engine = Engine(50.0, Links(), Links(), dense, {"lossless": (0.2, 0.2)})
    # a byte of rows takes 10 ns to code and saves a sixth of itself;
    # dense gradients take 4 ms and save 1.2 MB
    assert engine.exact_sends(case, 2, 50.0) == Sends(rows="lossless", dense="lossless")
    assert engine.exact_sends(case, 2, 500.0) == Sends(rows="exact", dense="lossless")
    assert engine.exact_sends(case, 2, 5000.0) == Sends()


def test_those_who_lead_have_further_rounds():
    took = {"a": 10.0, "b": 10.9, "c": 11.2, "d": 9.0, "e": 20.0}
    assert leaders(["b", "c", "a"], took) == ["a", "b"]
    assert leaders(["c", "b", "a"], took) == ["a", "b", "c"]  # the race is about the first
    assert leaders(["e", "d"], took) == ["d", "e"]  # the second, too, however slow
    assert leaders(["e"], took) == ["e"]


def test_every_contender_is_timed_at_every_rate(case, machine, tmp_path):
    turns = Turns(rounds=2, steps=1, further_rounds=2, fitting=0)
    rows = time_placements([replace(case, batch=64)], [500.0], turns, tmp_path, lambda _: None)
    here = [row for row in rows if row.rate_mbit == 500.0]
    assert len(here) == len(rows)
    for codec in ("exact", "coded"):
        placements = {row.placement for row in here if row.codec == codec} - {"alone"}
        assert placements >= {"planned", "row", "table"}
        assert ("planned_every_8" in placements) == (codec == "exact")
    simulated = [row for row in here if row.kind == "simulated"]
    assert [(row.placement.partition(" ")[0], row.codec) for row in simulated] == [
        ("none", "plain"),
        ("dedup", "exact"),
        ("dedup", "coded"),
    ]
    for row in here:
        assert row.measured_ms > 0
        assert (row.predicted_ms is None) == (row.placement in ("alone", "plain"))
        compared = row.kind == "time" and row.placement not in ("alone", "plain", "planned")
        assert (row.planned_over is not None) == compared
        if row.planned_over is not None:
            assert row.planned_over[1] <= row.planned_over[0] <= row.planned_over[2]
    console = Console(width=120, file=StringIO())
    console.print(render(rows))
    assert "planned_every_8" in console.file.getvalue()
    assert "laconic simulate against what was measured" in console.file.getvalue()
