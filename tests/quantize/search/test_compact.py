"""Compact tables answer as whole ones do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laconic.data import Samples
from laconic.quantize.formats import Recipe, RowFormat, TablePrecision, quantize_model
from laconic.quantize.search.compact import Compact
from laconic.serve import Engine
from tests.quantize.formats.models import samples_for, trained_model


@pytest.mark.parametrize("longest", [0, 4])
def test_an_engine_over_compact_tables_gives_the_same_logits(longest):
    trained = trained_model()
    precision = TablePrecision(format=RowFormat.INT4)
    recipe = Recipe.uniform(trained.features.table_names, trained.shape.layer_names(), table=precision)
    artifact = quantize_model(trained, recipe)
    inputs = [samples_for(trained, samples, seed=samples, longest=longest) for samples in (3, 1, 2)]
    batches = [Samples(torch.zeros(len(dense_BF)), dense_BF, lookups) for dense_BF, lookups in inputs]
    compact = Compact(batches)
    small = compact.artifact(artifact)
    for (dense_BF, lookups), renumbered in zip(inputs, compact.lookups, strict=True):
        expected_B = Engine(artifact).logits(dense_BF.numpy(), lookups)
        assert np.array_equal(Engine(small).logits(dense_BF.numpy(), renumbered), expected_B)
    rows = [len(table) for table in small.tables.values()]
    distinct = [
        len(torch.unique(torch.cat([lookups.table(t)[0] for _, lookups in inputs]))) for t in range(3)
    ]
    assert rows == [max(count, 1) for count in distinct]
