"""What a run cannot do well, or at all, is said where the user looks; nothing of it is accepted silently."""

from __future__ import annotations

import json
from io import StringIO

import pytest
import torch
from rich.console import Console

from laconic.adapt.settings import CompressionSettings, GradientCodec, RowCodec
from laconic.codecs import BoundedRows
from laconic.data import Samples
from laconic.errors import ConfigError
from laconic.report import read_any, render
from laconic.train import run as run_module
from laconic.train.run import run
from tests.train.small_runs import batches_of, settings_of, source_of, trainer_of


def ran(folder, *overrides):
    text = StringIO()
    settings = settings_of("data.samples=32", f"train.out={folder}", *overrides)
    return run(settings, resume=False, console=Console(file=text, width=300)), text.getvalue()


class _OneClass:
    """A source whose evaluation samples all have one label."""

    def __init__(self, source, label):
        self._source, self._label = source, label
        self.schema, self.samples_in, self.streams = source.schema, source.samples_in, source.streams

    def batches(self, split, **how):
        for samples in self._source.batches(split, **how):
            label_B = torch.full_like(samples.label_B, self._label) if split == "eval" else samples.label_B
            yield Samples(label_B, samples.dense_BF, samples.lookups)


@pytest.mark.parametrize("label", [0, 1])
def test_an_auc_of_one_class_is_undefined_and_not_a_figure(tmp_path, monkeypatch, label):
    monkeypatch.setattr(
        run_module, "open_source", lambda data: _OneClass(source_of(settings_of("data.samples=32")), label)
    )
    result, text = ran(tmp_path / "run")
    why = f"AUC undefined: all 50 labels are {label}"
    assert why in text
    assert "nan" not in text
    assert result.evaluation.positives == 50 * label
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["auc"] is None
    assert f"undefined: all 50 labels are {label}" in render(read_any(tmp_path / "run"))


@pytest.mark.parametrize("label", [2.0, 0.5, float("nan")])
def test_a_label_other_than_0_and_1_is_refused_with_its_value(label):
    settings = settings_of()
    (samples,) = batches_of(settings, 1)
    labels_B = samples.label_B.clone()
    labels_B[3] = label
    with pytest.raises(
        ConfigError, match=rf"^train: expected labels 0 and 1, got {label} at step 1 on rank 0; "
    ):
        trainer_of(settings).step(Samples(labels_B, samples.dense_BF, samples.lookups))


def test_a_policy_file_with_too_wide_a_bound_is_refused(tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text("[compression.tables.c0]\nrows.bound = 3.0\n")
    with pytest.raises(
        ConfigError,
        match=r"^compression\.tables\['c0'\]: rows: expected a bound of at most 0\.5 of the range.*, got 3\.0; 0\.0015 is usual",
    ):
        ran(tmp_path / "run", f"compression.policy={file}")


def test_a_bound_of_dense_gradients_that_is_all_noise_is_refused(tmp_path):
    with pytest.raises(
        ConfigError,
        match=r"^compression\.dense: expected a bound of at most 10 times the root mean square.*, got 20\.0",
    ):
        ran(tmp_path / "run", "compression.dense={method='bounded', bound=20.0}", "dense.optimizer=sgd")


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_dense_gradients_that_an_optimizer_takes_badly_are_warned_about(tmp_path, optimizer):
    result, text = ran(tmp_path / "run", "compression.dense=bounded", f"dense.optimizer={optimizer}")
    (warning,) = result.warnings
    assert warning.startswith(
        f"compression.dense: 'bounded' is meant for dense.optimizer 'sgd', got {optimizer!r}"
    )
    assert "levels" in warning
    assert warning in text
    assert warning in render(read_any(tmp_path / "run")).replace("&#x27;", "'")


@pytest.mark.parametrize(
    ("send", "optimizer"), [("large", "adagrad"), ("levels", "adam"), ("exact", "adagrad")]
)
def test_dense_gradients_that_suit_their_optimizer_are_not(tmp_path, send, optimizer):
    result, _ = ran(tmp_path / "run", f"compression.dense={send}", f"dense.optimizer={optimizer}")
    assert result.warnings == []


def test_a_run_without_evaluation_samples_says_so(tmp_path):
    result, text = ran(tmp_path / "run", "data.eval_samples=0")
    assert result.evaluation is None
    (warning,) = result.warnings
    assert warning.startswith("data: there are no evaluation samples, so the model is not evaluated")
    assert warning in text


def test_evaluations_of_no_samples_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"^train\.eval_every: 3 asks for evaluations, but there are no"):
        ran(tmp_path / "run", "data.eval_samples=0", "train.eval_every=3")


def test_limits_keep_the_widest_bounds_that_a_guard_starts_from():
    widest = CompressionSettings(rows=RowCodec(bound=0.5), gradients=GradientCodec(bound=4.0))
    assert widest.compression().rows == BoundedRows(0.5, relative_to="range")
