"""Steps on paper: the same traffic as the theory's, and what turning a method on changes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from laconic.codecs import BoundedRows
from laconic.config import parse
from laconic.cost.frequencies import Frequencies, hottest_of_all, rate_of_rank
from laconic.cost.measure import CodecFigures, measure_codec, measure_dense
from laconic.cost.needed_rows import distinct_rows
from laconic.errors import ConfigError
from laconic.plan.scenario import Scenario, model_of
from laconic.plan.simulate import (
    METHODS,
    Cell,
    Fabric,
    Methods,
    ModelLoad,
    simulate,
    step_cost,
    stops_paying,
)
from tests.oracle.expectation import expected_traffic
from tests.oracle.part import Holding, Part

CODEC = CodecFigures(row_bytes=8.0, block_bytes=20.0, row_s=1e-7, block_s=5e-6)
MODEL = ModelLoad(
    frequencies_T=tuple(Frequencies.zipf(rows, 1.05) for rows in (30, 4000, 1_000_000)), dim=16, samples=512,
    compute_s=0.01, dense_bytes=1e5, forward=CODEC, backward=CODEC, codec_threads=4, dense_ratio=6.0, dense_s_per_byte=1e-9,
    hot_bytes=1e9, sync_every=1, overlap=0.0, dense_overlap=0.0,
)  # fmt: skip
SLOW = Fabric(bytes_per_s=1e8, latency_s=1e-4, message_s=1e-6)


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_bytes_are_those_of_the_theory(ranks):
    parts = [
        Part(table="t", frequencies=f, holding=Holding.dealt(ranks), dim=16) for f in MODEL.frequencies_T
    ]
    traffic = expected_traffic(parts, MODEL.samples)
    cost = step_cost(MODEL, SLOW, ranks, Methods(dedup=True))
    assert cost.rows_bytes == pytest.approx(
        (traffic.forward.bytes_NN + traffic.backward.bytes_NN).sum() / ranks
    )
    messages = traffic.total - sum(
        flow.bytes_NN.sum() for flow in (traffic.ids, traffic.forward, traffic.backward)
    )
    # the theory takes all sizes of blocks for two bytes, the simulator computes them
    assert cost.ids_bytes == pytest.approx((traffic.ids.bytes_NN.sum() + messages) / ranks, rel=0.04)
    pooled = [
        replace(part, holding=Holding.whole(ranks, t % ranks), send="pooled") for t, part in enumerate(parts)
    ]
    vectors = expected_traffic(pooled, MODEL.samples).forward.bytes_NN.sum() / ranks
    assert step_cost(MODEL, SLOW, ranks, Methods()).rows_bytes == pytest.approx(2 * vectors)


def test_one_rank_only_computes():
    cost = step_cost(MODEL, SLOW, 1, Methods(dedup=True, hot=True, dense=True))
    assert (cost.step_s, cost.wire_s, cost.dense_bytes, cost.hot_rows) == (MODEL.compute_s, 0.0, 0.0, 0)


def test_transfers_hide_behind_computation():
    shown = step_cost(MODEL, SLOW, 8, Methods())
    hidden = step_cost(replace(MODEL, overlap=0.1), SLOW, 8, Methods())
    assert hidden.step_s == pytest.approx(shown.step_s - 0.1 * MODEL.compute_s)
    assert step_cost(replace(MODEL, overlap=1.0), SLOW, 8, Methods()).step_s == MODEL.compute_s


def test_sums_travel_beside_the_backward_pass_and_rows_do_not():
    shown, beside = (
        step_cost(replace(MODEL, dense_bytes=1e7, dense_overlap=share), SLOW, 8, Methods())
        for share in (0.0, 0.4)
    )
    assert beside.step_s == pytest.approx(shown.step_s - 0.4 * MODEL.compute_s)
    none, all_of_it = (
        step_cost(replace(MODEL, dense_bytes=0.0, dense_overlap=share), SLOW, 8, Methods())
        for share in (0.0, 1.0)
    )
    assert all_of_it == none


@pytest.mark.parametrize(("dense_bytes", "hidden"), [(1e3, 1.0), (1e9, 0.0)])
def test_sums_take_what_an_all_to_all_leaves_of_a_link(dense_bytes, hidden):
    """Few bytes are hidden as a whole; of many, as much as gradients leave at half of the speed."""
    model, half = replace(MODEL, dense_bytes=dense_bytes), replace(SLOW, all_to_all=0.5)
    whole, shared = (step_cost(model, network, 2, Methods()) for network in (SLOW, half))
    rows_s = whole.rows_bytes / SLOW.bytes_per_s
    ids_s = whole.ids_bytes / SLOW.bytes_per_s
    beside_s = hidden * whole.dense_bytes / SLOW.bytes_per_s + (1 - hidden) * rows_s / 2
    assert shared.wire_s == pytest.approx(whole.wire_s + rows_s + ids_s - beside_s)


def test_exactly_synchronised_copies_never_beat_distinct_rows():
    """A sum costs two vectors, an exchange at most two: proposition 4."""
    cost = step_cost(MODEL, SLOW, 8, Methods(dedup=True, hot=True))
    assert cost.hot_rows == 0
    stale = step_cost(replace(MODEL, sync_every=4), SLOW, 8, Methods(dedup=True, hot=True))
    assert stale.hot_rows > 0
    assert stale.rows_bytes + stale.hot_bytes < step_cost(MODEL, SLOW, 8, Methods(dedup=True)).rows_bytes
    narrow = replace(SLOW, all_to_all=0.25)
    assert step_cost(MODEL, narrow, 8, Methods(dedup=True, hot=True)).hot_rows > 0


@pytest.mark.parametrize("methods", [Methods(hot=True), Methods(dedup=True, hot=True)])
def test_the_hot_set_is_the_best_one(methods):
    """No other number of hot rows sends less: neither half the memory nor a higher threshold."""
    model = replace(MODEL, sync_every=3)

    def sent(hot_bytes: float) -> float:
        cost = step_cost(replace(model, hot_bytes=hot_bytes), SLOW, 8, methods)
        return cost.rows_bytes + cost.hot_bytes

    best = step_cost(model, SLOW, 8, methods)
    assert 0 < best.hot_rows < 10_000
    assert all(sent(model.hot_bytes) <= sent(64 * rows) + 1e-6 for rows in range(0, best.hot_rows, 7))


def test_nothing_but_empty_heads_is_sent_where_every_row_is_hot():
    model = replace(MODEL, frequencies_T=MODEL.frequencies_T[:1], sync_every=1000)
    cost = step_cost(model, SLOW, 8, Methods(dedup=True, hot=True))
    assert (cost.hot_rows, cost.rows_bytes) == (30, 0.0)
    assert 0 < cost.announced_bytes < 7 * 3 * 40


def test_copies_take_no_more_memory_than_there_is():
    assert step_cost(replace(MODEL, hot_bytes=6400), SLOW, 8, Methods(hot=True)).hot_rows <= 100
    assert step_cost(replace(MODEL, hot_bytes=0), SLOW, 8, Methods(hot=True)).hot_rows == 0


def test_one_threshold_takes_the_best_rows_of_all_tables():
    """Keeping the hottest rows of all tables leaves fewest rows to fetch (brute force)."""
    tables = (Frequencies.zipf(6, 1.3), Frequencies.zipf(9, 0.4, lookups_per_sample=2.5))
    for k in range(16):
        chosen = hottest_of_all(tables, k)
        rows = sum(c.rows for c in chosen)
        assert rows == min(k, 15)

        def left(first: int, second: int, lookups: int) -> float:
            cuts = zip(tables, (first, second), strict=True)
            return sum(distinct_rows(t.cut(n)[1], lookups * t.lookups_per_sample) for t, n in cuts)

        for lookups in (1, 10, 200):
            kept = left(chosen[0].rows, chosen[1].rows, lookups)
            others = [left(n, rows - n, lookups) for n in range(max(0, rows - 9), min(6, rows) + 1)]
            assert kept <= min(others) + 1e-9
    assert rate_of_rank(tables, 15) == 0.0


def test_a_method_stops_paying_between_two_bandwidths():
    cells = list(simulate(MODEL, [8], [0.1, 1, 10, 100, 1000], latency_s=1e-5, message_s=1e-6))
    gains = [cell.gain("bounded") for cell in cells]
    assert gains[0] > 1.2
    assert gains[-1] < 1
    stop = stops_paying(cells, "bounded")
    below = [cell.gbps for cell in cells if cell.gain("bounded") >= 1.01]
    assert max(below) <= stop <= min(cell.gbps for cell in cells if cell.gbps > max(below))
    assert stops_paying(cells[:1], "bounded") == math.inf
    assert stops_paying(cells[-1:], "bounded") == 0.0
    assert all(cell.costs[cell.best].step_s == min(c.step_s for c in cell.costs.values()) for cell in cells)
    assert cells[0].alone("bounded") > 1


def test_a_method_that_changes_nothing_is_not_chosen():
    (cell,) = simulate(MODEL, [1], [1.0], latency_s=0, message_s=0)
    assert isinstance(cell, Cell)
    assert cell.best == Methods()
    assert cell.best.text == "none"
    assert Methods(*(True,) * 4).text == " + ".join(METHODS)


@pytest.mark.parametrize("dim", [16, 33])
def test_measured_figures_predict_a_batch_of_blocks(dim):
    """Bytes of blocks between the measured ones are within a tenth; seconds are not tested."""
    import torch

    codec = BoundedRows(0.02, relative_to="range")
    figures = measure_codec(dim, codec)
    rows = torch.randn(64, dim, generator=torch.Generator().manual_seed(1))
    assert len(codec.encode(rows)) == pytest.approx(64 * figures.row_bytes + figures.block_bytes, rel=0.15)
    assert figures.row_s > 0


def test_levels_are_measured():
    ratio, seconds = measure_dense()
    assert 4 < ratio < 9
    assert seconds > 0


def test_a_trillion_rows_are_simulated():
    scenario = parse(
        "", Scenario, ("total_rows=1_000_000_000_000", "ranks=[64, 4096]", "gbps=[10]", "dim=16")
    )
    model = model_of(scenario, (45_000_000, 3, 900))
    assert sum(f.rows for f in model.frequencies_T) == 10**12
    assert [f.rows for f in model.frequencies_T[1:]] == [3, 900]
    cells = list(simulate(model, scenario.ranks, scenario.gbps, latency_s=1e-5, message_s=1e-6))
    assert all(cost.step_s > model.compute_s for cell in cells for cost in cell.costs.values())


def test_given_ratios_win_over_measured_ones():
    model = model_of(parse("", Scenario, ("forward_ratio=20", "dense_ratio=100", "dim=16", "rows=[9]")), (1,))
    assert model.forward.row_bytes == pytest.approx(3.2)
    assert model.dense_ratio == 100
    assert model.frequencies_T[0].rows == 9


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("ranks=[8, 4]", r"ranks: expected rising numbers, got \[8, 4\]"),
        ("gbps=[0]", "gbps.0: expected greater than 0, got 0"),
        ("zipf=-1", "zipf: expected a value >= 0 and <= 10, got -1"),
        ("bacth=5", "bacth: no such setting; did you mean 'batch'"),
    ],
)
def test_scenarios_that_cannot_be_are_refused(override, message):
    with pytest.raises(ConfigError, match=message):
        parse("", Scenario, (override,))


def test_models_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="total_rows: expected more than the 903 rows of small tables"):
        model_of(parse("", Scenario, ("total_rows=903", "dim=16")), (45_000_000, 3, 900))
    with pytest.raises(ConfigError, match="at least one rank, got 0"):
        step_cost(MODEL, SLOW, 0, Methods())
    with pytest.raises(ConfigError, match="samples and sync_every of at least 1"):
        replace(MODEL, samples=0)
    with pytest.raises(ConfigError, match="finite numbers >= 0"):
        CodecFigures(row_bytes=float("nan"), block_bytes=0, row_s=0, block_s=0)
