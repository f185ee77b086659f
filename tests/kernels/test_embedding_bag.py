"""Embedding bags: all kernels alike bit for bit, and right."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laconic.kernels import RowBags, available, load
from laconic.quantize.formats import RowFormat, dequantize_rows, quantize_rows
from tests.cases import each

FORMATS = list(RowFormat)
NATIVE = [name for name in available() if name != "reference"]


def call(
    name,
    tables,
    formats,
    dim,
    ids,
    offsets,
    samples,
    *,
    weights=None,
    mean=False,
    unknown=None,
    first=0,
    threads=1,
):
    kernels = load(name)
    held = kernels.row_tables(dim)
    for table, format in zip(tables, formats, strict=True):
        held.add(table.numpy(), format.code)
    out = np.full((samples, first + len(tables), dim), np.nan, np.float32)
    bags = RowBags(ids, offsets, weights, mean)
    bad = kernels.embedding_bags(held, bags, unknown, out, first, threads)
    return bad, out


@st.composite
def requests(draw):
    dim = draw(st.integers(1, 140))
    seed = draw(st.integers(0, 2**31))
    generator = np.random.default_rng(seed)
    formats = draw(st.lists(st.sampled_from(FORMATS), min_size=1, max_size=5))
    samples = draw(st.integers(0, 9))
    rows = [int(generator.integers(1, 40)) for _ in formats]
    tables = [
        quantize_rows(torch.from_numpy(generator.normal(size=(r, dim)).astype(np.float32)), f)
        for r, f in zip(rows, formats, strict=True)
    ]
    lengths = generator.integers(0, draw(st.sampled_from([1, 2, 6, 40])), len(formats) * samples)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = np.concatenate(
        [np.zeros(0, np.int64)]
        + [
            generator.integers(0, r, offsets[(t + 1) * samples] - offsets[t * samples])
            for t, r in enumerate(rows)
        ]
    ).astype(np.int64)
    weights = generator.normal(size=len(ids)).astype(np.float32) if draw(st.booleans()) else None
    mean = weights is None and draw(st.booleans())
    return (tables, formats, dim, ids, offsets, samples), {
        "weights": weights,
        "mean": mean,
        "first": draw(st.integers(0, 2)),
    }


@given(requests(), st.integers(1, 3))
def test_all_kernels_agree_bit_for_bit(request, threads):
    positional, named = request
    bad, expected = call("reference", *positional, **named)
    assert bad == -1
    for name in NATIVE:
        bad, out = call(name, *positional, **named, threads=threads)
        assert bad == -1
        np.testing.assert_array_equal(out.view(np.uint32), expected.view(np.uint32))


@each("format", FORMATS)
@each("mode", ["sum", "mean", "weighted"])
def test_a_bag_is_what_torch_makes_of_restored_rows(format, mode):
    generator = torch.Generator().manual_seed(0)
    table = quantize_rows(torch.randn(1000, 64, generator=generator), format)
    lengths = torch.randint(0, 30, (200,), generator=generator)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    ids = torch.randint(0, 1000, (int(offsets[-1]),), generator=generator)
    weights = torch.randn(len(ids), generator=generator) if mode == "weighted" else None
    bad, out = call(
        available()[0],
        [table],
        [format],
        64,
        ids.numpy(),
        offsets.numpy(),
        200,
        weights=None if weights is None else weights.numpy(),
        mean=mode == "mean",
    )
    expected = torch.nn.functional.embedding_bag(
        ids,
        dequantize_rows(table, format, 64).double(),
        offsets,
        mode="sum" if weights is not None else mode,
        per_sample_weights=None if weights is None else weights.double(),
        include_last_offset=True,
    )
    assert bad == -1
    # 30 terms of magnitude below 5 * 4, each addition off by half a unit in the last place
    assert np.abs(out[:, 0] - expected.numpy()).max() < 30 * 30 * 20 * 2**-24


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_bags_are_those_of_fbgemm(bits, weighted):
    pytest.importorskip("fbgemm_gpu", reason="no fbgemm_gpu here to compare with")
    from fbgemm_gpu.split_embedding_configs import SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_inference import (
        IntNBitTableBatchedEmbeddingBagsCodegen,
    )

    kind = {8: SparseType.INT8, 4: SparseType.INT4, 2: SparseType.INT2}[bits]
    format = RowFormat(f"int{bits}")
    generator = torch.Generator().manual_seed(bits)
    x_RD = torch.randn(500, 64, generator=generator)
    theirs = IntNBitTableBatchedEmbeddingBagsCodegen(
        [("t", 500, 64, kind, EmbeddingLocation.HOST)], device="cpu", output_dtype=SparseType.FP32
    )
    theirs.fill_random_weights()
    packed = quantize_rows(x_RD, format)
    weights, scale_bias = theirs.split_embedding_weights()[0]
    codes, parameters = packed[:, : 64 * bits // 8], packed[:, 64 * bits // 8 :]
    if bits == 8:  # its operator keeps scale and bias of int8 rows in float16
        parameters = parameters.contiguous().view(torch.float32).half().view(torch.uint8)
        packed = torch.cat([codes, parameters.view(torch.float16).float().view(torch.uint8)], dim=1)
    weights.copy_(codes)
    scale_bias.copy_(parameters)
    lengths = torch.randint(0, 20, (100,), generator=generator)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    ids = torch.randint(0, 500, (int(offsets[-1]),), generator=generator)
    each = torch.rand(len(ids), generator=generator) if weighted else None
    expected = theirs(ids.int(), offsets.int(), each)
    _, out = call(
        available()[0],
        [packed],
        [format],
        64,
        ids.numpy(),
        offsets.numpy(),
        100,
        weights=None if each is None else each.numpy(),
    )
    # 20 terms of magnitude below 5, summed with other roundings
    assert np.abs(out[:, 0] - expected.numpy()).max() < 20 * 20 * 5 * 2**-23


@each("name", available())
def test_ids_outside_are_refused_or_looked_up_where_the_caller_says(name):
    tables = [
        quantize_rows(torch.arange(12.0).view(3, 4), RowFormat.INT8),
        quantize_rows(torch.ones(2, 4), RowFormat.FP32),
    ]
    formats = [RowFormat.INT8, RowFormat.FP32]
    ids, offsets = np.array([0, 2, 9, -1, 1], np.int64), np.array([0, 1, 3, 4, 5], np.int64)
    assert call(name, tables, formats, 4, ids, offsets, 2)[0] == 2
    assert call(name, tables, formats, 4, ids, offsets, 2, unknown=np.array([2, -1], np.int64))[0] == 3
    bad, out = call(name, tables, formats, 4, ids, offsets, 2, unknown=np.array([2, 0], np.int64))
    assert bad == -1
    np.testing.assert_allclose(out[1, 0], [16, 18, 20, 22], atol=0.05)
    np.testing.assert_array_equal(out[0, 1], 1)


@each("name", available())
@each("offsets", [[0, 2, 1], [0, 1, 4], [-1, 0, 1], [0, 1]])
def test_offsets_that_lie_are_refused(name, offsets):
    table = quantize_rows(torch.ones(2, 4), RowFormat.INT4)
    with pytest.raises(ValueError, match="offsets must"):
        call(name, [table], [RowFormat.INT4], 4, np.zeros(3, np.int64), np.array(offsets, np.int64), 2)


@each("name", available())
def test_rows_of_the_wrong_size_are_refused(name):
    held = load(name).row_tables(4)
    with pytest.raises(ValueError, match="wrong size"):
        held.add(np.zeros((2, 11), np.uint8), RowFormat.INT8.code)
    with pytest.raises(ValueError, match="format must be"):
        held.add(np.zeros((2, 12), np.uint8), 5)
