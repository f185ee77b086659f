"""Quantization: from a trained model and a recipe to an artifact."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from laconic.quantize.formats.artifact import Artifact
from laconic.quantize.formats.layers import Observed, quantize_layer
from laconic.quantize.formats.recipe import Recipe, TablePrecision
from laconic.quantize.formats.rows import quantize_rows
from laconic.quantize.formats.table_rows import TableRows, pieces
from laconic.quantize.formats.trained_model import TrainedModel, linear_layers

__all__ = ["quantize_layers", "quantize_model", "quantize_table"]


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
            stored[name] = quantize_table(trained.tables[name], recipe.tables[name])
    return Artifact(
        shape=trained.shape,
        features=trained.features,
        recipe=recipe,
        tables={name: stored[name] for name in trained.features.table_names},
        layers=layers,
        vocabularies=trained.vocabularies,
    )


def quantize_table(table: TableRows, precision: TablePrecision) -> Tensor:
    """Quantize a table piece by piece: uint8, rows x bytes of a row.

    ``ConfigError`` as for ``quantize_rows``.
    """
    stored_RW = torch.empty(len(table), precision.format.row_bytes(table.shape[1]), dtype=torch.uint8)
    for first, rows_RD in pieces(table):
        stored_RW[first : first + len(rows_RD)] = quantize_rows(
            rows_RD, precision.format, precision.ranges, first=first
        )
    return stored_RW


def quantize_layers(
    trained: TrainedModel, recipe: Recipe, observed: Mapping[str, Observed] | None = None
) -> dict[str, dict[str, Tensor]]:
    """Quantize the layers alone."""
    return {
        name: quantize_layer(name, layer, recipe.layers[name], (observed or {}).get(name))
        for name, layer in linear_layers(trained.dense_model()).items()
    }
