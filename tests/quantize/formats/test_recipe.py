"""Recipes, layers and calibration."""

from __future__ import annotations

import numpy as np
import pytest
import tomli_w
import torch

from laconic.config import parse
from laconic.errors import ConfigError
from laconic.quantize.formats import LayerPrecision, Recipe, TablePrecision, observe, quantize_model
from laconic.quantize.formats.layers import quantize_layer, restored_weight
from tests.quantize.formats.models import samples_for, trained_model, with_precisions


def test_a_recipe_survives_its_text():
    recipe = Recipe(
        tables={"c user\n\x7f": TablePrecision(format="int4", ranges="l2"), "c.2": TablePrecision()},
        layers={"top.0": LayerPrecision(kind="int8_static", equalized=True, ranges="l2")},
    )
    for written in (recipe, Recipe()):
        assert parse(tomli_w.dumps(written.model_dump(mode="json", exclude_none=True)), Recipe) == written


@pytest.mark.parametrize("said", ["true", "false"])
def test_a_recipe_from_before_is_read(said):
    text = f'[layers.logit]\nkind = "int8_static"\nper_channel = {said}\nequalized = false\nranges = "l2"\n'
    assert parse(text, Recipe).layers == {"logit": LayerPrecision(kind="int8_static", ranges="l2")}


def test_mistakes_in_a_recipe_are_named():
    with pytest.raises(ConfigError, match=r"settings: tables\.c\.format: expected .*got 'int5'"):
        parse('[tables.c]\nformat = "int5"', Recipe)
    with pytest.raises(ConfigError, match="no such setting; did you mean 'format'"):
        parse('[tables.c]\nfromat = "int4"', Recipe)


def test_a_recipe_must_fit_the_model():
    trained = trained_model()
    recipe = Recipe.uniform(trained.features.table_names, trained.shape.layer_names())
    with pytest.raises(ConfigError, match=r"recipe\.tables: the model has no 'x' \(known: c\.0"):
        quantize_model(trained, with_precisions(recipe, x=TablePrecision()))
    layers = {name: precision for name, precision in recipe.layers.items() if name != "logit"}
    with pytest.raises(ConfigError, match=r"recipe\.layers: expected a precision for 'logit', got none"):
        quantize_model(trained, recipe.model_copy(update={"layers": layers}))
    with pytest.raises(ConfigError, match=r"layer 'top\.0': int8_static needs its inputs observed"):
        quantize_model(trained, with_precisions(recipe, **{"top.0": LayerPrecision(kind="int8_static")}))
    with pytest.raises(ConfigError, match="expected at least one sample"):
        observe(trained, [samples_for(trained, 0)])


def linear(weight_NK):
    layer = torch.nn.Linear(weight_NK.shape[1], weight_NK.shape[0], bias=False)
    layer.weight.data = weight_NK
    return layer


def test_weights_are_within_half_a_code():
    weight_NK = (
        torch.randn(20, 30, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 2, 20)[:, None]
    )
    stored = quantize_layer("top.0", linear(weight_NK), LayerPrecision(kind="int8_dynamic"))
    off_NK = (restored_weight(stored) - weight_NK).abs()
    assert (off_NK <= weight_NK.abs().amax(dim=1, keepdim=True) / 127 * 0.5001).all()
    with pytest.raises(ConfigError, match=r"layer 'top\.0': expected finite weights"):
        quantize_layer("top.0", linear(weight_NK / 0), LayerPrecision())


def test_equalization_moves_range_from_inputs_to_weights():
    trained = trained_model()
    dense_BF, lookups = samples_for(trained, 200)
    dense_BF[:, 0] *= 100  # one input drowns the others
    observed = observe(trained, [(dense_BF, lookups)])
    weight, precision = trained.state["bottom.0.weight"], LayerPrecision(kind="int8_dynamic", equalized=True)
    stored = quantize_layer("bottom.0", linear(weight), precision, observed["bottom.0"])
    x_size = observed["bottom.0"].size_K * stored["equal"]
    w_size = (weight / stored["equal"]).abs().amax(dim=0)
    np.testing.assert_allclose(x_size, w_size, rtol=1e-5)


def test_the_range_of_least_error_leaves_outliers_out():
    trained = trained_model()
    dense_BF, lookups = samples_for(trained, 4000)
    observed = observe(trained, [(dense_BF, lookups)])
    for seen in observed.values():
        low, high = seen.range("minmax")
        l2_low, l2_high = seen.range("l2")
        assert low <= l2_low <= 0 <= l2_high <= high
