"""Tables taken piece by piece and batch by batch give what whole ones do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from laconic.errors import ConfigError
from laconic.quantize.formats import RowFormat, TablePrecision, quantize_rows, table_rows, trained_model
from laconic.quantize.formats.quantize import quantize_table
from laconic.quantize.formats.table_rows import groups
from tests.quantize.formats import models


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of three rows of dimension 8, and groups of sixty rows of dimension 16."""
    monkeypatch.setattr(table_rows, "PIECE_VALUES", 31)
    monkeypatch.setattr(trained_model, "GROUP_VALUES", 60 * 16)


@pytest.mark.parametrize("format", list(RowFormat))
def test_a_table_in_pieces_is_quantized_as_a_whole_one(small_pieces, format):
    rows_RD = torch.randn(10, 8)
    assert torch.equal(quantize_table(rows_RD, TablePrecision(format=format)), quantize_rows(rows_RD, format))


@pytest.mark.parametrize("format", [RowFormat.FP16, RowFormat.INT4])
def test_a_row_that_does_not_fit_is_named_by_its_number_in_the_table(small_pieces, format):
    rows_RD = torch.randn(10, 8)
    rows_RD[7, 3] = 1e6
    with pytest.raises(ConfigError, match="row 7 has a value of magnitude 1000000"):
        quantize_table(rows_RD, TablePrecision(format=format))


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_batches_that_share_rows_are_embedded_as_from_whole_tables(small_pieces, pooling):
    trained = models.trained_model(pooling=pooling)
    batches = [models.samples_for(trained, samples, seed=samples)[1] for samples in (0, 5, 9, 1, 40)]
    embedded = list(trained.embed_batches(batches))
    for lookups, embeddings_BTD in zip(batches, embedded, strict=True):
        for t, name in enumerate(trained.features.table_names):
            ids_L, offsets = lookups.table(t)
            expected_BD = nn.functional.embedding_bag(
                ids_L, trained.tables[name], offsets, mode=pooling, include_last_offset=True
            )
            assert torch.equal(embeddings_BTD[:, t], expected_BD)


def test_groups_have_no_more_than_asked_but_for_large_batches():
    assert list(groups([3, 4, 3, 20, 1, 1], lambda size: size, 7)) == [[3, 4], [3], [20], [1, 1]]
    assert list(groups([], lambda size: size, 7)) == []
