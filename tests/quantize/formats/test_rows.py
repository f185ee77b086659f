"""Rows in few bits: their errors, their bytes, and what FBGEMM makes of them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laconic.errors import ConfigError, FormatError
from laconic.quantize.formats import Ranges, RowFormat, dequantize_rows, quantize_rows

INTEGERS = [RowFormat.INT8, RowFormat.INT4, RowFormat.INT2]


def error(x_RD, format, ranges):
    return (
        (dequantize_rows(quantize_rows(x_RD, format, ranges), format, x_RD.shape[1]) - x_RD)
        .square()
        .sum(dim=1)
    )


@given(
    st.sampled_from(list(RowFormat)),
    st.sampled_from(list(Ranges)),
    st.integers(0, 20),
    st.integers(1, 70),
    st.sampled_from([1e-30, 1e-4, 1.0, 100.0]),
    st.integers(0, 2**31),
)
def test_every_value_is_within_a_code_of_itself_or_clipped_for_a_smaller_error(
    format, ranges, rows, dim, size, seed
):
    x_RD = torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed)) * size
    packed_RW = quantize_rows(x_RD, format, ranges)
    assert packed_RW.shape == (rows, format.row_bytes(dim))
    back_RD = dequantize_rows(packed_RW, format, dim)
    if format is RowFormat.FP32:
        assert torch.equal(back_RD, x_RD)
    elif format is RowFormat.FP16:
        assert torch.equal(back_RD, x_RD.half().float())
    elif rows and ranges is Ranges.MINMAX:
        extent_R = x_RD.amax(dim=1) - x_RD.amin(dim=1)
        step_R = extent_R / (2**format.bits - 1)
        # The error is half a step. Bias and scale in float16 are off by 2^-11 of themselves, or by
        # 2^-25, and the top code multiplies the error of the scale.
        rounding_R = x_RD.abs().amax(dim=1) * 2**-10 + extent_R * 2**-10 + 2**-24 * 2**format.bits
        if format is RowFormat.INT8:
            rounding_R = x_RD.abs().amax(dim=1) * 2**-20 + 1e-8
        assert ((back_RD - x_RD).abs() <= (step_R / 2 + rounding_R)[:, None]).all()


@pytest.mark.parametrize("format", INTEGERS)
def test_a_better_range_has_less_error_row_by_row(format):
    x_RD = torch.randn(500, 64, generator=torch.Generator().manual_seed(1))
    x_RD[:100, 0] *= 20  # outliers, for which a search pays
    minmax, greedy, l2 = (error(x_RD, format, ranges) for ranges in (Ranges.MINMAX, Ranges.GREEDY, Ranges.L2))
    slack = 1e-5 * minmax  # the search sums in another order, and int8's inverse has FBGEMM's epsilon
    assert (greedy <= minmax + slack).all()
    assert (l2 <= greedy + slack).all()
    if format is not RowFormat.INT8:
        assert greedy.sum() < 0.99 * minmax.sum()
        assert l2.sum() < greedy.sum()


def test_constant_rows_come_back_as_themselves_in_float16():
    x_RD = torch.tensor([[0.0] * 5, [3.25] * 5, [-7.5] * 5])
    for format in INTEGERS:
        for ranges in Ranges:
            assert torch.equal(dequantize_rows(quantize_rows(x_RD, format, ranges), format, 5), x_RD)


def test_chunks_do_not_show():
    x_RD = torch.randn(3000, 1024, generator=torch.Generator().manual_seed(2))
    whole = quantize_rows(x_RD, RowFormat.INT4)
    assert torch.equal(whole[1024:1030], quantize_rows(x_RD[1024:1030], RowFormat.INT4))
    assert torch.equal(
        dequantize_rows(whole, RowFormat.INT4, 1024)[2000:2003],
        dequantize_rows(whole[2000:2003], RowFormat.INT4, 1024),
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 70000.0])
def test_what_a_format_cannot_hold_is_refused_with_its_row(value):
    x_RD = torch.zeros(10, 4)
    x_RD[7, 2] = value
    for format in (RowFormat.FP16, RowFormat.INT4, RowFormat.INT2):
        with pytest.raises(ConfigError, match="row 7 has a value of magnitude"):
            quantize_rows(x_RD, format)
    assert torch.equal(
        dequantize_rows(quantize_rows(x_RD, RowFormat.FP32), RowFormat.FP32, 4).nan_to_num(),
        x_RD.nan_to_num(),
    )


def test_wrong_shapes_are_refused():
    with pytest.raises(ConfigError, match="expected a matrix"):
        quantize_rows(torch.zeros(3), RowFormat.INT8)
    with pytest.raises(ConfigError, match="expected a matrix"):
        quantize_rows(torch.zeros(3, 2, dtype=torch.int32), RowFormat.INT8)
    with pytest.raises(FormatError, match="rows of 12 bytes for 4 numbers in int8"):
        dequantize_rows(torch.zeros(3, 11, dtype=torch.uint8), RowFormat.INT8, 4)


@pytest.mark.parametrize("size", [1e-2, 1.0, 50.0])
def test_the_greedy_search_finds_what_that_of_torch_finds(size):
    x_RD = torch.randn(300, 64, generator=torch.Generator().manual_seed(6)) * size
    x_RD[:100, 0] *= 20
    theirs = torch.ops.quantized.embedding_bag_4bit_prepack(x_RD, True, 200, 0.16)
    found = (dequantize_rows(theirs, RowFormat.INT4, 64) - x_RD).square().sum(dim=1)
    # where two ranges are equally good the order of sums decides, by 64 roundings of 2^-24
    assert torch.allclose(error(x_RD, RowFormat.INT4, Ranges.GREEDY), found, rtol=2**-18, atol=0)


@pytest.fixture(scope="module")
def fbgemm():
    pytest.importorskip("fbgemm_gpu", reason="no fbgemm_gpu here to compare with")
    return torch.ops.fbgemm


@pytest.mark.parametrize("dim", [8, 16, 64, 104])
@pytest.mark.parametrize("size", [1e-3, 1.0, 50.0])
def test_bytes_are_those_of_fbgemm(fbgemm, dim, size):
    x_RD = torch.randn(300, dim, generator=torch.Generator().manual_seed(dim)) * size
    x_RD[0] = 0.25
    assert torch.equal(quantize_rows(x_RD, RowFormat.INT8), fbgemm.FloatToFused8BitRowwiseQuantized(x_RD))
    for format in (RowFormat.INT4, RowFormat.INT2):
        theirs = fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf(x_RD, format.bits)
        assert torch.equal(quantize_rows(x_RD, format), theirs)
        restored = fbgemm.FusedNBitRowwiseQuantizedSBHalfToFloat(theirs, format.bits)
        assert torch.allclose(dequantize_rows(theirs, format, dim), restored, rtol=2**-22, atol=0)
