"""From a trained model and a recipe to an artefact."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from laconic.quant.artefact import Artefact
from laconic.quant.layers import quantize_layer
from laconic.quant.model_shape import linear_layers
from laconic.quant.observe import Observed
from laconic.quant.recipe import Recipe
from laconic.quant.rows import quantize_rows
from laconic.quant.trained_model import TrainedModel

__all__ = ["quantize_layers", "quantize_model"]


def quantize_model(
    trained: TrainedModel,
    recipe: Recipe,
    observed: Mapping[str, Observed] | None = None,
    *,
    metrics: Mapping[str, float] | None = None,
    say: Callable[[str], None] = lambda name: None,
) -> Artefact:
    """Quantise every table and layer as the recipe says. ``observed`` comes from ``observe``.

    ``say`` is called with the name of each table before it is quantised.
    """
    recipe.check(trained.features.table_names, trained.shape.layer_names())
    layers = quantize_layers(trained, recipe, observed)
    tables = {}
    for name in trained.features.table_names:
        say(name)
        choice = recipe.tables[name]
        tables[name] = quantize_rows(trained.tables[name], choice.format, choice.ranges)
    return Artefact(
        shape=trained.shape,
        features=trained.features,
        recipe=recipe,
        tables=tables,
        layers=layers,
        metrics=dict(metrics or {}),
        vocabularies=trained.vocabularies,
    )


def quantize_layers(
    trained: TrainedModel, recipe: Recipe, observed: Mapping[str, Observed] | None = None
) -> dict[str, dict[str, Tensor]]:
    """Quantise the layers alone."""
    return {
        name: quantize_layer(
            f"layer {name!r}", layer.weight, layer.bias, recipe.layers[name], (observed or {}).get(name)
        )
        for name, layer in linear_layers(trained.dense_part()).items()
    }
