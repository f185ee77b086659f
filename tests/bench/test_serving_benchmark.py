"""The serving benchmark: everybody computes the same model, and rows say what was asked for."""

from __future__ import annotations

import pytest
import torch

from laconic.bench.serving import models
from laconic.bench.serving.bags import measure_bags
from laconic.bench.serving.benchmark import _measure
from laconic.bench.serving.engines import ENGINES
from laconic.bench.serving.tables import render
from laconic.data import SyntheticSettings


@pytest.fixture(scope="module")
def case():
    data = SyntheticSettings(kind="synthetic", rows=(100, 2000, 30), samples=6000, eval_samples=600)
    return models._trained_case("small", data, 5, 2, lambda text: None)


def test_engines_agree_on_the_model(case):
    pytest.importorskip("onnxruntime", reason="no onnxruntime here to compare with")
    part = case.parts[0]
    exact = ENGINES["fp32"](case).logits(part)
    for name in ("onnxruntime", "laconic"):
        logits = ENGINES[name](case).logits(part)
        # 8 bits for weights and inputs of six layers
        assert (logits - exact).abs().max() < 0.05 * (exact.max() - exact.min()) + 0.01, name


def test_rows_have_figures_for_every_engine_and_batch(case):
    rows = _measure(case, ["fp32", "laconic"], (1, 256), 1, lambda text: None)
    assert [(row.engine, row.batch) for row in rows] == [
        ("fp32", 1),
        ("laconic", 1),
        ("fp32", 256),
        ("laconic", 256),
    ]
    assert rows[1].size_bytes < rows[0].size_bytes / 3
    assert all(row.ne is not None and row.p99_ms >= row.p50_ms > 0 for row in rows)
    render(rows)


def test_bags_are_measured_in_every_format():
    torch.manual_seed(0)
    rows = measure_bags(1000, 1, lambda text: None)
    assert [row.engine for row in rows] == ["fp32", "laconic fp32", "laconic int8", "laconic int4"]
