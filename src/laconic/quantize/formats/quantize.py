"""Quantization: from a trained model and a recipe to an artifact."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from laconic.quantize.formats.artifact import Artifact
from laconic.quantize.formats.layers import Observed, quantize_layer
from laconic.quantize.formats.recipe import Recipe
from laconic.quantize.formats.rows import quantize_rows
from laconic.quantize.formats.trained_model import TrainedModel, linear_layers

__all__ = ["quantize_layers", "quantize_model"]


def quantize_model(
    trained: TrainedModel,
    recipe: Recipe,
    observed: Mapping[str, Observed] | None = None,
    *,
    tables: Mapping[str, Tensor] | None = None,
) -> Artifact:
    """Quantize every table and layer as the recipe says. ``observed`` comes from ``observe``.

    ``tables`` has rows that are quantized by this recipe already, by name of their table.
    """
    recipe.check(trained.features.table_names, trained.shape.layer_names())
    layers = quantize_layers(trained, recipe, observed)
    stored = dict(tables or {})
    for name in trained.features.table_names:
        if name not in stored:
            precision = recipe.tables[name]
            stored[name] = quantize_rows(trained.tables[name], precision.format, precision.ranges)
    return Artifact(
        shape=trained.shape,
        features=trained.features,
        recipe=recipe,
        tables={name: stored[name] for name in trained.features.table_names},
        layers=layers,
        vocabularies=trained.vocabularies,
    )


def quantize_layers(
    trained: TrainedModel, recipe: Recipe, observed: Mapping[str, Observed] | None = None
) -> dict[str, dict[str, Tensor]]:
    """Quantize the layers alone."""
    return {
        name: quantize_layer(name, layer, recipe.layers[name], (observed or {}).get(name))
        for name, layer in linear_layers(trained.dense_model()).items()
    }
