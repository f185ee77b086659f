"""The thresholding benchmark trains what it says, pairs runs of one seed, and shows all of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from rich.console import Console

from benchmarks.thresholding import (
    DROPPED,
    PLAIN,
    SplitCase,
    SplitOutcome,
    SplitTrial,
    default_cases,
    loss_changes,
    pairs_of,
    paper_cases,
    render,
    run_trial,
    split_model,
)
from laconic.codecs.threshold import Threshold
from laconic.data import SyntheticSettings
from laconic.errors import ConfigError
from laconic.models import DLRM

DATA = SyntheticSettings(kind="synthetic", rows=(200, 30, 5), samples=6 * 1024, eval_samples=2048)
CASES = [
    PLAIN,
    SplitCase("exact", "stages", 3, Threshold.exact()),
    SplitCase("default", "stages", 2, Threshold()),
    SplitCase("default", "neurons", 3, Threshold()),
]


@pytest.fixture(scope="module")
def outcomes():
    threads = torch.get_num_threads()
    found = [run_trial(SplitTrial("generated", DATA, case, 0)) for case in CASES]
    torch.set_num_threads(threads)
    return found


def test_an_exact_split_costs_nothing_and_saves_nothing(outcomes):
    plain, exact = outcomes[:2]
    assert (exact.log_loss, exact.auc) == (plain.log_loss, plain.auc)
    assert 0.999 < exact.ratio < 1
    assert exact.kept == 1


def test_bytes_before_are_those_of_float32_at_the_splits(outcomes):
    values = 6 * 1024 * 256
    assert outcomes[2].bytes_before == 2 * 4 * values
    # three stages have a second split, of 128 columns
    assert outcomes[1].bytes_before == 2 * 4 * (values + values // 2)


def test_divided_neurons_go_to_every_worker_that_needs_them(outcomes):
    # bottom 64 to all, 16 to the first; interaction 16 + 6 to all, top 256 to all, 128 to the first
    widths = 2 * 64 + (16 - 16 // 3) + 2 * (16 + 6) + 2 * 256 + (128 - 128 // 3)
    assert outcomes[3].bytes_before == 2 * 4 * 6 * 1024 * widths


def test_thresholds_save_bytes_in_every_direction(outcomes):
    for outcome in outcomes[2:]:
        assert outcome.ratio > 10
        assert 0 < outcome.kept < 0.4
        assert min(outcome.bytes_mask, outcome.bytes_forward, outcome.bytes_backward) > 0


def test_rows_are_means_of_pairs():
    def outcome(case, seed, loss):
        return SplitOutcome(SplitTrial("d", DATA, case, seed), loss, 0.8, 0.1, 6400, 10, 30, 60)

    case = CASES[2]
    lone = outcome(replace(case, name="lone"), 7, 0.4)
    pairs = [outcome(PLAIN, 0, 0.5), outcome(PLAIN, 1, 0.4), outcome(case, 0, 0.51), outcome(case, 1, 0.4)]
    (found,) = pairs_of([*pairs, lone]).values()
    assert loss_changes(found) == pytest.approx([0.02, 0.0])
    console = Console(width=200, record=True)
    console.print(render([*pairs, lone]))
    text = console.export_text()
    assert "2 pairs" in text
    assert "+1.000% (1.000%)" in text
    assert "64.0x fewer" in text


def test_tables_show_every_case(outcomes):
    console = Console(width=200, record=True)
    console.print(render(outcomes))
    text = console.export_text()
    for words in ("generated: stages, 3 workers", "generated: neurons, 3 workers", "default", "x fewer"):
        assert words in text


def test_the_papers_cases_are_all_there():
    cases = paper_cases("neurons")
    assert len(cases) == 16
    assert {(round(1 - case.threshold.keep, 2), case.threshold.method, case.workers) for case in cases} == {
        (dropped, method, workers)
        for dropped in DROPPED
        for method in ("laplace", "topk")
        for workers in (2, 3)
    }
    assert {(case.form, case.workers) for case in default_cases()} == {
        (form, workers) for form in ("stages", "neurons") for workers in (2, 3)
    }


@pytest.mark.parametrize("workers", [1, 4])
def test_a_top_mlp_of_two_layers_has_two_places_to_split(workers):
    model = DLRM(dense=2, tables=3, dim=4, bottom=(8,), top=(8, 8))
    with pytest.raises(ConfigError, match=f"workers: expected 2 to 3, got {workers}"):
        split_model(model, "stages", workers, Threshold())
