"""The population of the held-out samples, as the server's watch would learn it from requests."""

from __future__ import annotations

import numpy as np

from laconic.data import Categorical, Samples, Schema
from laconic.quantize.formats.features import Features
from laconic.quantize.formats.population import Population
from laconic.quantize.search.emulate import table_bags
from laconic.serve.query import Query
from laconic.serve.watch.input_drift import InputDrift

__all__ = ["population_of"]


def population_of(features: Features, batches: tuple[Samples, ...]) -> Population:
    """Histograms of every feature, over at least one sample."""
    schema = Schema(
        tuple(feature.name for feature in features.dense),
        tuple(Categorical(table.name, table.rows, bag=table.bag) for table in features.tables),
    )
    total = sum(map(len, batches))
    drift = InputDrift(schema, reference=total, window=total)
    for samples in batches:
        drift.add(_query(features, samples))
    return drift.population()


def _query(features: Features, samples: Samples) -> Query:
    lookups = samples.lookups
    unknown = [
        int((table_bags(lookups, t)[0] == table.rows - 1).sum()) if table.unknown else 0
        for t, table in enumerate(features.tables)
    ]
    lengths_TB = lookups.offsets.diff().view(lookups.tables, lookups.samples).numpy()
    return Query(
        samples.dense_BF.numpy(), lookups.ids_L.numpy(), lengths_TB, np.array(unknown, dtype=np.int64)
    )
