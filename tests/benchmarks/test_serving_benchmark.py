"""The serving benchmark: everybody computes the same model, and rows say what was asked for."""

from __future__ import annotations

import pytest
import torch

from benchmarks import timing
from benchmarks.serving import benchmark
from benchmarks.serving import engines as models
from benchmarks.serving.benchmark import (
    ServingResult,
    flops,
    measure_bags,
    measure_complexity,
    measure_engines,
    render,
)
from benchmarks.serving.engines import ENGINES, forget_compiled, with_precisions
from laconic.data import SyntheticSettings
from laconic.quantize.formats import ModelShape
from laconic.quantize.search import latency
from laconic.train.settings import ModelSettings


@pytest.fixture(scope="module", autouse=True)
def short_turns():
    """Nothing here depends on times."""

    def time_calls(calls, *, rounds, turn_s):
        return timing.time_calls(calls, rounds=rounds, turn_s=turn_s / 20)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark, "time_calls", time_calls)
        patch.setattr(latency, "_ROUNDS", 1)
        yield


def silent(text: str) -> None:
    """Nobody looks."""


@pytest.fixture(scope="module")
def trained():
    data = SyntheticSettings(kind="synthetic", rows=(100, 2000, 30), samples=6000, eval_samples=6000)
    model = ModelSettings(dim=64, bottom=(128, 64), top=(256, 128, 64))
    settings = models.run_settings(data).model_copy(update={"model": model})
    return models.trained_case("small", settings, 5, silent)


@pytest.fixture(scope="module")
def case(trained):
    pytest.importorskip("scipy", reason="the search needs scipy")
    return with_precisions(*trained, silent)


def test_the_search_does_not_have_the_samples_that_are_scored(trained):
    def keys(parts):
        return {tuple(row.tolist()) for part in parts for row in part.dense_BF}

    case, bench = trained
    scored = keys(case.batches)
    assert len(scored) == 256 * len(case.batches) > 2000
    assert not scored & keys([*bench.halves.search, *bench.halves.verification])


def test_laconic_serves_what_the_search_chose(case):
    found = case.artifact
    assert found.metrics["budget"] == 0.0003
    assert found.metrics["ne_change"] <= 0.0003
    assert ENGINES["laconic"](case).size_bytes == found.size_bytes


def test_engines_agree_on_the_model(case):
    pytest.importorskip("onnxruntime", reason="no onnxruntime here to compare with")
    part = case.batches[0]
    exact = ENGINES["fp32"](case).logits(part)
    for name in ("onnxruntime", "laconic"):
        logits = ENGINES[name](case).logits(part)
        # 8 bits for weights and inputs of six layers
        assert (logits - exact).abs().max() < 0.05 * (exact.max() - exact.min()) + 0.01, name


def test_every_model_is_compiled_for_every_batch(monkeypatch):
    graphs, real = [], torch.compile

    def counted(module, inputs):
        graphs.append(module)
        return module.forward

    monkeypatch.setattr(torch, "compile", lambda model, **how: real(model, **how, backend=counted))
    monkeypatch.setattr(
        torch._dynamo.config, "recompile_limit", 3
    )  # fewer than two models need, but for forgetting
    for tables in (1, 2):
        data = SyntheticSettings(kind="synthetic", rows=(10,) * tables, eval_samples=300)
        case = models.reference_case(1, data)
        forget_compiled()
        contender = ENGINES["compile"](case)
        for batch in (1, 64, 256, 1):
            contender.logits(case.batches[0].first(batch))
    assert len(graphs) == 2 * 3


def test_rows_have_figures_for_every_engine_and_batch(case):
    rows = measure_engines(case, ["fp32", "laconic"], (1, 256), 1, silent)
    assert [(row.engine, row.batch) for row in rows] == [
        ("fp32", 1),
        ("laconic", 1),
        ("fp32", 256),
        ("laconic", 256),
    ]
    assert rows[1].size_bytes < rows[0].size_bytes / 3
    assert all(row.ne is not None and row.p99_ms >= row.p50_ms > 0 for row in rows)
    render(ServingResult(rows, []))


def test_bags_are_measured_in_every_format():
    torch.manual_seed(0)
    rows = measure_bags(1000, 1)
    assert [row.engine for row in rows] == ["fp32", "laconic fp32", "laconic int8", "laconic int4"]


def test_flops_count_layers_and_dot_products():
    shape = ModelShape(dense=3, tables=2, dim=4, bottom=(5,), top=(6,))
    layers = 3 * 5 + 5 * 4 + (4 + 3) * 6 + 6  # two vectors of tables and one of the dense features: 3 pairs
    assert flops(shape) == 2 * (layers + 3 * 4)


def test_larger_models_stand_beside_the_reference():
    small = SyntheticSettings(kind="synthetic", rows=(100, 2000, 30), eval_samples=600)
    large = SyntheticSettings(kind="synthetic", rows=(500, 10_000, 150), eval_samples=600)
    cases = [models.reference_case(2, data) for data in (small, large)]
    reference, *wider = measure_complexity(*cases, 1, silent, widths=(1.5, 2.0))
    assert reference.row.model == "complexity reference"
    assert reference.fits(reference)
    assert [fit.row.engine for fit in wider] == ["laconic", "laconic"]
    assert reference.flops < wider[0].flops < wider[1].flops
    assert "x FLOPs" in wider[0].row.model
    assert wider[0].parameters > sum(large.rows) * 64
    assert all(
        fit.row.size_bytes < fit.parameters * 1.2 for fit in wider
    )  # int4 and int8 with what belongs to them
    render(ServingResult([], [reference, *wider]))
