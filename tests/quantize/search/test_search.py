"""Choices within a budget, measured and verified; and what is done where they are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laconic.errors import PlanError
from laconic.quantize.search.choose import choose, harm_figures, pareto
from laconic.quantize.search.probe import Probe
from laconic.quantize.search.search import Drafts, Half, search
from laconic.quantize.search.sensitivity import MeasurementFile, measure_candidates

pytest.importorskip("scipy")


@pytest.fixture(scope="module")
def halves(bench):
    drafts = Drafts(bench.trained, bench.observed, lambda *_: None)
    return Half(drafts, bench.halves.search), Half(drafts, bench.halves.verification)


@pytest.fixture(scope="module")
def parts(bench, tmp_path_factory):
    path = tmp_path_factory.mktemp("measured") / "m.jsonl"
    probe = Probe(bench.trained, bench.halves.search, bench.observed)
    return measure_candidates(
        probe, lambda candidate: -float(candidate.label == "fp16"), MeasurementFile(path, "x")
    )


def with_harm(parts, factor):
    """Return the same measurements with ``factor`` times the harm."""

    def changed(harm):
        return replace(harm, expected=harm.expected * factor, measured=-1.0, measured_se=0.0)

    return [[replace(m, harm=changed(m.harm)) for m in part] for part in parts]


def test_what_is_found_is_within_the_budget_on_unseen_samples(parts, halves):
    found = search(parts, 0.001, "size", *halves)
    again = halves[1].score(found.chosen.recipe)
    assert again.harm == found.verified.harm
    assert again.harm.within(0.001)
    assert found.chosen.harm <= 0.001
    assert found.chosen.bytes < 0.5 * sum(part[0].bytes for part in parts)
    assert found.attempts[-1].verification == harm_figures(found.verified.harm)


def test_a_combination_that_harms_more_than_predicted_is_backed_off_from(parts, halves):
    budget = halves[0].score(choose(parts, 10.0, "size").recipe).harm.expected / 2
    found = search(with_harm(parts, 0.05), budget, "size", *halves)
    first, *_, last = found.attempts
    assert max(first.search.measured, first.search.expected) > budget
    assert first.verification is None
    assert last.budget < first.budget
    assert found.verified.harm.within(budget)


def test_it_gives_up_where_nothing_helps(parts, halves):
    # harm is said to be none at all, whatever is chosen: every budget buys the same
    with pytest.raises(
        PlanError, match=r"none of 12 combinations is within the budget of 0\.0000%; the last"
    ):
        search(with_harm(parts, 0.0), 1e-9, "size", *halves)


def test_every_budget_buys_what_it_can(parts):
    points = pareto(parts, 0.001)
    for objective in ("size", "latency"):
        curve = [point for point in points if point.objective == objective]
        assert all(point.harm <= point.budget for point in curve)
        taken = [point.bytes if objective == "size" else point.us for point in curve]
        assert taken == sorted(taken, reverse=True)
    assert len({point.bytes for point in points}) > 3


def test_latency_takes_what_is_fast(parts):
    chosen = choose(parts, 1.0, "latency")
    tables = [m.candidate.label for m in chosen.parts if m.candidate.part.kind == "table"]
    assert tables == ["fp16"] * 3


def test_a_wide_budget_takes_the_smallest_of_everything(parts):
    alike = [[replace(m, us=0.0) for m in part] for part in parts]
    chosen = choose(alike, 10.0, "size")
    assert chosen.bytes == sum(min(m.bytes for m in part) for part in parts)
    assert chosen.gap == 0


def test_a_few_bytes_are_not_worth_the_time_of_a_layer(parts):
    def timed(m):
        return replace(m, us=0.0 if m.candidate.label == "int8 dynamic" else 100.0)

    layer = next(part for part in parts if part[0].candidate.part.kind == "layer")
    fast = next(m for m in layer if m.candidate.label == "int8 dynamic")
    smaller = [replace(m, bytes=fast.bytes - 1) if m.candidate.label == "bf16" else m for m in layer]
    others = [part for part in parts if part is not layer]
    chosen = choose([[timed(m) for m in smaller], *others], 10.0, "size")
    assert chosen.parts[0].candidate.label == "int8 dynamic"
