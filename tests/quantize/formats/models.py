"""Small models with random weights, and samples for them."""

from __future__ import annotations

import torch

from laconic.lookups import Lookups
from laconic.quantize.formats import (
    DenseFeature,
    Features,
    LayerPrecision,
    ModelShape,
    Recipe,
    TableFeature,
    TablePrecision,
    TrainedModel,
)


def trained_model(kind="dlrm", dim=16, dense=3, rows=(50, 7, 1), pooling="sum", seed=0) -> TrainedModel:
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    shape = ModelShape(
        kind=kind,
        dense=dense,
        tables=len(rows),
        dim=dim,
        bottom=(24,) if dense else (),
        top=(33, 20),
        pooling=pooling,
    )
    features = Features(
        dense=tuple(DenseFeature(name=f"d{i}") for i in range(dense)),
        tables=tuple(
            TableFeature(name=f"c.{i}", rows=count, bag=True, unknown=i == 0) for i, count in enumerate(rows)
        ),
    )
    tables = {f"c.{i}": torch.randn(count, dim, generator=generator) for i, count in enumerate(rows)}
    return TrainedModel(shape, features, tables, shape.build().state_dict())


def samples_for(trained: TrainedModel, samples: int, seed=0, longest=4):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, longest + 1, (trained.shape.tables * samples,), generator=generator)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    ids = []
    for t, table in enumerate(trained.features.tables):
        count = int(offsets[(t + 1) * samples] - offsets[t * samples])
        ids.append(torch.randint(0, table.rows, (count,), generator=generator))
    dense_BF = torch.randn(samples, trained.shape.dense, generator=generator)
    return dense_BF, Lookups(torch.cat(ids), offsets, trained.shape.tables)


def with_precisions(recipe: Recipe, **precisions: TablePrecision | LayerPrecision) -> Recipe:
    """Return the recipe with other precisions, by name: ``**{"top.0": LayerPrecision(...)}``."""
    tables = {
        name: precision for name, precision in precisions.items() if isinstance(precision, TablePrecision)
    }
    layers = {
        name: precision for name, precision in precisions.items() if isinstance(precision, LayerPrecision)
    }
    return Recipe(tables={**recipe.tables, **tables}, layers={**recipe.layers, **layers})
