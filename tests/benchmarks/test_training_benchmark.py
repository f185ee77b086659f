"""The training benchmark measures what it says, with real ranks."""

from __future__ import annotations

import math

import pytest
from rich.console import Console

from benchmarks.harness import Interval, paired_ratios, real_data_sets
from benchmarks.training.benchmark import StepRatio, TrainingResult, TrainingRow, render
from benchmarks.training.worker import ALL_METHODS, METHODS, Epoch, Steps, TrainingPool, paper_bound
from laconic.adapt.settings import CompressionSettings
from laconic.cost.link import message_bytes
from laconic.data import SyntheticSettings, open_source
from laconic.demo.measure import step_ms
from laconic.errors import CommError, ConfigError
from laconic.train.settings import ModelSettings

DATA = SyntheticSettings(kind="synthetic", rows=(2000, 300, 5), samples=512, eval_samples=256)
MODEL = ModelSettings(dim=8, bottom=(8,), top=(8,))


def test_ranks_time_and_train_every_method():
    with TrainingPool(2) as driver:
        job = Steps(data=DATA, model=MODEL, methods=("alone", *ALL_METHODS), batch=64, rounds=2, steps=1)
        answers = driver.time_steps(job)
        trained = driver.train_epoch(Epoch(data=DATA, model=MODEL, method="laconic", batch=64, curve_every=2))
    assert list(answers) == ["alone", *ALL_METHODS]
    assert all(len(a.round_ms) == 2 and len(a.round_ms[0]) == 1 and step_ms(a) > 0 for a in answers.values())
    assert answers["alone"].bytes_forward == 0
    plain = answers["plain"]
    # pooled float32: every sample of the other rank, for this one's tables, and the head
    sent_per_step = 64 * 3 / 2 * 8 * 4 + message_bytes(3, ranks=2)
    for sent in (plain.bytes_forward, plain.bytes_backward):
        assert sent == pytest.approx(sent_per_step, abs=8)
    assert answers["fp16"].bytes_forward < plain.bytes_forward
    assert answers["sc24"].bytes_backward == plain.bytes_backward
    assert answers["laconic"].bytes_ids < plain.bytes_ids
    assert trained.steps == 4
    assert [point["step"] for point in trained.curve] == [2, 4]
    assert trained.auc is not None
    assert [table["name"] for table in trained.tables] == ["c0", "c1", "c2"]


def test_a_rank_that_fails_is_an_error_with_its_words():
    with pytest.raises(CommError, match="no_such_method"), TrainingPool(2) as driver:
        driver.train_epoch(Epoch(data=DATA, model=MODEL, method="no_such_method", batch=8))


def test_methods_differ_only_in_what_travels():
    schema = open_source(DATA).schema
    plans = {name: method.policy(schema).plan_for(0) for name, method in METHODS.items()}
    assert len({plan.digest for plan in plans.values()}) == 5  # plain and rows_fp32 differ in what they send
    assert all(codecs.backward is None for codecs in plans["sc24"].tables)
    assert [codecs.forward.bound for codecs in plans["sc24"].tables] == [0.03, 0.05, 0.05]
    defaults = CompressionSettings()
    for codecs in plans["laconic"].tables:
        assert codecs.forward.bound == defaults.rows.bound
        assert codecs.backward.bound == defaults.gradients.bound


@pytest.mark.parametrize(("rows", "bound"), [(1_000_000, 0.01), (415_000, 0.01), (36_084, 0.03), (970, 0.05)])
def test_bounds_are_those_of_the_papers_classes(rows, bound):
    assert paper_bound(rows) == bound


def test_ratios_are_paired_by_round():
    mean, low, high = paired_ratios([[1.0, 1.0], [2.0], [3.0]], [[2.0], [4.0], [6.0, 6.0]])
    assert mean == low == high == 0.5
    mean, low, high = paired_ratios([[1.0], [2.0]], [[1.0], [1.0]])
    assert mean == 1.5
    assert high - mean == pytest.approx(12.706 * math.sqrt(0.5) / math.sqrt(2))
    assert math.isnan(paired_ratios([[1.0]], [[2.0]])[1])


def test_tables_show_every_method():
    sizes = {"bytes_forward": 4e6, "bytes_backward": 3e6, "bytes_ids": 2e4, "bytes_dense": 1e6}
    rows = []
    for method in METHODS:
        rows.append(
            TrainingRow(
                kind="timing",
                data="d",
                method=method,
                rate_mbit=200,
                hosts=2,
                step_ms=3.0,
                communication_share=0.5,
                profile_matched=True,
                **sizes,
            )
        )
        rows.append(TrainingRow(kind="bytes", data="books", method=method, hosts=4, **sizes))
        rows += [
            TrainingRow(
                kind="accuracy", data="books", method=method, hosts=4, seed=s, auc=0.8, log_loss=0.5, **sizes
            )
            for s in (0, 1)
        ]
    console = Console(width=140, record=True, file=None)
    with console.capture() as capture:
        console.print(render(TrainingResult(rows, [StepRatio(200, "int8", Interval(0.7, 0.6, 0.8))])))
    text = capture.get()
    assert all(text.count(f"│ {method} ") == 3 for method in METHODS)
    assert "profile-matched" in text
    assert "0.700 (0.600 - 0.800)" in text
    assert "+0.00000" in text


def test_a_folder_without_parquet_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no \*\.parquet in"):
        real_data_sets(tmp_path, tmp_path)
