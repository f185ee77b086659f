"""The engine: what it computes, what it refuses, and what of it can be raised to fp32."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from laconic.errors import ConfigError
from laconic.lookups import Lookups
from laconic.quantize.formats import (
    LayerPrecision,
    Recipe,
    TablePrecision,
    observe,
    quantize_model,
    write_artifact,
)
from laconic.quantize.formats.rows import dequantize_rows
from laconic.serve import Engine
from tests.quantize.formats.models import samples_for, trained_model

SHAPES = [
    {"kind": "dlrm"},
    {"kind": "dlrm", "dense": 0, "dim": 5},
    {"kind": "dcn_v2", "pooling": "mean"},
    {"kind": "dcn_v2", "dense": 0},
]


def engine_of(trained, *, table="fp32", layer="fp32", **named):
    recipe = Recipe.uniform(
        trained.features.table_names,
        trained.shape.layer_names(),
        table=TablePrecision(format=table),
        layer=LayerPrecision(kind=layer),
    )
    observed = observe(trained, [samples_for(trained, 100)])
    return Engine(quantize_model(trained, recipe, observed), **named)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_in_fp32_it_computes_what_torch_does(shape):
    trained = trained_model(**shape)
    dense_BF, lookups = samples_for(trained, 37)
    logits_B = trained.logits(trained.dense_model(), dense_BF, lookups).numpy()
    engine = engine_of(trained)
    np.testing.assert_allclose(engine.logits(dense_BF.numpy(), lookups), logits_B, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        engine.score(dense_BF.numpy(), lookups), 1 / (1 + np.exp(-logits_B.astype(np.float64))), atol=1e-4
    )


@pytest.mark.parametrize("kind", ["dlrm", "dcn_v2"])
@pytest.mark.parametrize("layer", ["fp32", "bf16", "int8_dynamic", "int8_static"])
def test_a_score_that_overflowed_is_not_a_number_and_others_stay_what_they_are(kind, layer):
    """Rounding to codes would make finite numbers of infinite ones."""
    trained = trained_model(kind=kind)
    dense_BF, lookups = samples_for(trained, 5)
    engine = engine_of(trained, table="int8", layer=layer)
    expected_B = engine.logits(dense_BF.numpy(), lookups)
    for value in (3e38, -3e38):
        large_BF = dense_BF.numpy().copy()
        large_BF[2] = value
        logits_B = engine.logits(large_BF, lookups)
        assert np.isnan(logits_B[2])
        np.testing.assert_array_equal(np.delete(logits_B, 2), np.delete(expected_B, 2))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layer", ["bf16", "int8_dynamic", "int8_static"])
def test_in_low_precision_it_ranks_as_in_fp32(shape, layer):
    trained = trained_model(**shape)
    dense_BF, lookups = samples_for(trained, 200)
    exact_B = trained.logits(trained.dense_model(), dense_BF, lookups).numpy()
    logits_B = engine_of(trained, table="int8", layer=layer).logits(dense_BF.numpy(), lookups)
    assert np.corrcoef(exact_B, logits_B)[0, 1] > 0.98


@pytest.mark.parametrize("format", ["fp16", "int8", "int4", "int2"])
def test_tables_in_low_precision_are_restored_rows(format):
    trained = trained_model()
    dense_BF, lookups = samples_for(trained, 20)
    engine = engine_of(trained, table=format)
    choices = engine.artifact.recipe.tables
    restored = {
        name: dequantize_rows(table, choices[name].format, 16)
        for name, table in engine.artifact.tables.items()
    }
    trained.tables.update(restored)
    expected = trained.logits(trained.dense_model(), dense_BF, lookups).numpy()
    np.testing.assert_allclose(engine.logits(dense_BF.numpy(), lookups), expected, rtol=1e-4, atol=1e-4)


def test_samples_do_not_influence_one_another_nor_do_threads():
    trained = trained_model(dim=24)
    dense_BF, lookups = samples_for(trained, 130)
    one = engine_of(trained, table="int4", layer="int8_dynamic").logits(dense_BF.numpy(), lookups)
    three = engine_of(trained, table="int4", layer="int8_dynamic", threads=3).logits(
        dense_BF.numpy(), lookups
    )
    np.testing.assert_array_equal(one, three)
    single = engine_of(trained, table="int4", layer="int8_dynamic")
    for b in (0, 77, 129):
        bags = [
            lookups.ids_L[lookups.offsets[t * 130 + b] : lookups.offsets[t * 130 + b + 1]] for t in range(3)
        ]
        offsets = torch.tensor([0, *np.cumsum([len(bag) for bag in bags])])
        alone = single.logits(dense_BF[b : b + 1].numpy(), Lookups(torch.cat(bags), offsets, 3))
        np.testing.assert_array_equal(alone, one[b : b + 1])


def test_no_samples_give_no_scores():
    engine = engine_of(trained_model(), layer="int8_dynamic")
    nothing = Lookups(torch.empty(0, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), 3)
    assert engine.score(np.empty((0, 3), np.float32), nothing).shape == (0,)


def test_bad_input_gets_one_clear_error():
    trained = trained_model()
    engine, (dense_BF, lookups) = engine_of(trained), samples_for(trained, 4)
    dense = dense_BF.numpy()
    with pytest.raises(ConfigError, match=r"float32 of shape \(samples, 3\), got float32 of shape \(4, 2\)"):
        engine.score(dense[:, :2], lookups)
    with pytest.raises(ConfigError, match="got float64"):
        engine.score(dense.astype(np.float64), lookups)
    with pytest.raises(ConfigError, match="bags for 3 tables and 3 samples, got 12 for 3 tables"):
        engine.score(dense[:3], lookups)
    weighted = replace(lookups, weights_L=torch.ones(len(lookups.ids_L)))
    with pytest.raises(ConfigError, match="expected lookups without weights, got weights"):
        engine.score(dense, weighted)
    wrong = dense.copy()
    wrong[2, 1] = np.nan
    with pytest.raises(ConfigError, match="sample 2: expected finite dense features, got nan for 'd1'"):
        engine.score(wrong, lookups)
    ids_TB = torch.zeros(3, 4, dtype=torch.int64)
    ids_TB[1, 2] = 7
    with pytest.raises(ConfigError, match=r"sample 2: table 'c\.1' has rows 0 to 6, got id 7"):
        engine.score(dense, Lookups.single(ids_TB))


def test_what_is_raised_to_fp32_is_exact_and_leaves_the_engine_as_it_is(tmp_path):
    trained = trained_model()
    dense_BF, lookups = samples_for(trained, 64)
    dense = dense_BF.numpy()
    made = engine_of(trained, table="int2", layer="int8_dynamic")
    write_artifact(tmp_path / "a", made.artifact, shadow=trained)
    engine = Engine.load(tmp_path / "a")
    low = engine.logits(dense, lookups)
    np.testing.assert_array_equal(low, made.logits(dense, lookups))
    raised, seen = engine, [low]
    for name in engine.lowered:
        raised = raised.raised(name)
        seen.append(raised.logits(dense, lookups))
    assert all(not np.array_equal(one, before) for before, one in pairwise(seen))
    assert raised.lowered == ()
    exact = trained.logits(trained.dense_model(), dense_BF, lookups).numpy()
    np.testing.assert_allclose(seen[-1], exact, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(engine.shadow().logits(dense, lookups), seen[-1])
    np.testing.assert_array_equal(engine.logits(dense, lookups), low)


def test_what_cannot_be_raised_is_refused():
    made = engine_of(trained_model(), table="int4")
    with pytest.raises(ConfigError, match=r"no table or layer 'c\.9' \(known: c\.0, "):
        made.raised("c.9")
    with pytest.raises(ConfigError, match=r"it has no shadow\.safetensors"):
        made.raised("c.0")
    assert made.raised("top.0").precisions == made.precisions  # it is in fp32 already
    with pytest.raises(ConfigError, match="at least one thread, got 0"):
        Engine(made.artifact, threads=0)
