"""Cast: the fixed-rate baselines against what torch does, and their own error formulas."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given

from laconic import Batch, BoundedRows, Cast
from laconic.errors import ConfigError, FormatError
from tests.cases import each
from tests.codecs.matrices import raw_matrices


@pytest.mark.parametrize(("dtype", "torch_dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
@given(x=raw_matrices)
def test_sixteen_bits_round_as_torch_does(dtype, torch_dtype, x):
    y = Cast(dtype).decode(Cast(dtype).encode(x), tuple(x.shape))
    expected = x.to(torch_dtype).float()
    assert torch.equal(torch.isnan(y), torch.isnan(expected))
    ordinary = ~torch.isnan(expected)
    assert torch.equal(y[ordinary].view(torch.int32), expected[ordinary].view(torch.int32))


@given(x=raw_matrices)
def test_thirty_two_bits_are_kept(x):
    y = Cast("fp32").decode(Cast("fp32").encode(x), tuple(x.shape))
    assert torch.equal(y.view(torch.int32), x.view(torch.int32))


def test_a_batch_can_mix_exact_and_compressed_tables():
    exact, other = torch.randn(40, 16), torch.randn(50, 16)
    batch = Batch.of([(BoundedRows(0.1), (50, 16)), (Cast("fp32"), (40, 16))])
    values = batch.decode(*batch.encode(torch.cat([other, exact])))
    assert torch.equal(values[50 * 16 :].view(40, 16), exact)
    assert not torch.equal(values[: 50 * 16].view(50, 16), other)


@each(("dtype", "levels"), [("int8", 255), ("int4", 15)])
def test_rows_come_back_within_half_a_level(dtype, levels):
    torch.manual_seed(0)
    x = torch.randn(100, 33)
    y = Cast(dtype).decode(Cast(dtype).encode(x), (100, 33))
    extent = (x.max(1).values - x.min(1).values).unsqueeze(1)
    # int4 keeps scale and bias in float16: 2^-11 of the bias, and of 15 scales
    slack = 0 if dtype == "int8" else (x.abs().max() + extent) * 2**-11
    assert bool(((x - y).abs() <= extent / levels / 2 * 1.0001 + slack + 1e-6).all())


@each(("dtype", "size"), [("fp32", 132), ("fp16", 66), ("bf16", 66), ("int8", 41), ("int4", 21)])
def test_the_size_follows_from_the_shape(dtype, size):
    assert Cast(dtype).encode(torch.randn(7, 33)).numel() == 7 * size
    assert Cast(dtype).max_bytes((7, 33)) == 7 * size


@each("dtype", ["int8", "int4"])
@each("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_comes_back_as_nan_and_others_do_not(dtype, bad):
    x = torch.randn(3, 20)
    x[1, 7] = bad
    y = Cast(dtype).decode(Cast(dtype).encode(x), (3, 20))
    assert bool(torch.isnan(y[1]).all())
    assert not bool(torch.isnan(y[[0, 2]]).any())


def test_decoding_to_the_cast_type_is_exact():
    x = torch.randn(5, 5)
    assert torch.equal(Cast("fp16").decode(Cast("fp16").encode(x), (5, 5), torch.float16), x.half())


def test_an_unknown_type_is_refused_with_the_known_ones():
    with pytest.raises(
        ConfigError, match=r"cast\.dtype: no such type 'fp8' \(known: fp32, fp16, bf16, int8, int4\)"
    ):
        Cast("fp8")


def test_a_block_of_the_wrong_size_is_refused_with_both_sizes():
    with pytest.raises(FormatError, match="block: expected 20 bytes for this shape, got 19"):
        Cast("fp16").decode(torch.zeros(19, dtype=torch.uint8), (2, 5))
