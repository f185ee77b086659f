"""What BoundedRows adds to the contract: forms, de-duplication, unbiased rounding, ratios."""

from __future__ import annotations

import re

import pytest
import torch

from laconic import Batch, Bounded, BoundedRows
from laconic.errors import ConfigError
from tests.cases import each
from tests.codecs.guarantee import absolute_bound, assert_within

CONSTANT, STORED, PACKED, ENTROPY, DEDUPLICATED = range(5)


def form_of(codec, x):
    return int(codec.encode(x)[0])


def test_a_block_takes_the_form_that_fits_it():
    torch.manual_seed(0)
    codec = BoundedRows(0.02)
    assert form_of(codec, torch.full((10, 10), 3.3)) == CONSTANT
    assert form_of(codec, torch.rand(10, 10) * 0.01) == CONSTANT  # one code everywhere
    assert form_of(BoundedRows(1e-9), torch.randn(10, 10)) == STORED
    assert form_of(codec, torch.randint(0, 16, (5, 5)) * 0.1) == PACKED
    assert form_of(codec, torch.randn(100, 16)) == ENTROPY
    assert form_of(codec, torch.randn(20, 16)[torch.randint(0, 20, (400,))]) == DEDUPLICATED


def test_an_empty_tensor_is_an_empty_block():
    assert BoundedRows().encode(torch.empty(0, 8)).numel() == 0
    assert BoundedRows().encode(torch.empty(8, 0)).numel() == 0


def test_equal_rows_are_found_wherever_they_are():
    torch.manual_seed(0)
    table = torch.randn(100, 64)
    far_apart = torch.cat([table, torch.randn(3000, 64), table])
    without = BoundedRows(0.02).encode(far_apart[:-100]).numel()
    saved = BoundedRows(0.02).encode(far_apart).numel() - without
    assert saved < 100 * 64 * 6 / 8 * 0.25  # a quarter of what the rows would cost again


def test_rows_that_become_equal_by_quantizing_are_sent_once():
    torch.manual_seed(0)
    row = torch.randn(64)
    x = row + torch.rand(1000, 64) * 1e-6
    assert BoundedRows(0.1).encode(x).numel() < 300


def test_flat_tensors_ignore_rows():
    torch.manual_seed(0)
    x = torch.randn(20, 16)[torch.randint(0, 20, (400,))]
    assert form_of(Bounded(0.02), x) == ENTROPY
    assert torch.equal(Bounded(0.02).encode(x), Bounded(0.02).encode(x.reshape(-1)))


def test_a_relative_bound_is_a_share_of_the_finite_range():
    torch.manual_seed(0)
    x = torch.randn(200, 16) * 7
    x[0, 0], x[1, 1] = float("inf"), float("nan")
    finite = x[torch.isfinite(x)].double()
    absolute = 0.03 * float(finite.max() - finite.min())
    y = BoundedRows(0.03, relative_to="range").decode(
        BoundedRows(0.03, relative_to="range").encode(x), (200, 16)
    )
    assert_within(x, y, absolute)
    error = (x.double() - y.double())[torch.isfinite(x)].abs().max()
    assert error > 0.9 * absolute  # the bound is used, not just kept


def test_a_bound_relative_to_the_rms_is_a_share_of_that_of_the_finite_values():
    torch.manual_seed(0)
    x = torch.randn(200, 16) * 7 + 3
    x[0, 0], x[1, 1] = float("inf"), float("nan")
    finite = x[torch.isfinite(x)].double()
    absolute = 0.1 * float(finite.square().mean().sqrt())
    codec = BoundedRows(0.1, relative_to="rms")
    y = codec.decode(codec.encode(x), (200, 16))
    error = (x.double() - y.double())[torch.isfinite(x)].abs().max()
    assert 0.9 * absolute < error <= absolute
    assert_within(x, y, absolute_bound(x, 0.1, "rms"))


def test_one_outlier_erases_the_rest_relative_to_the_range_and_not_relative_to_the_rms():
    torch.manual_seed(0)
    x = torch.randn(2000, 16)
    x[7, 7] = 1000.0
    y = {}
    for relative_to in ("range", "rms"):
        codec = BoundedRows(0.1, relative_to=relative_to)
        y[relative_to] = codec.decode(codec.encode(x), (2000, 16))
    assert int((y["range"] != 0).sum()) == 1
    assert int((y["rms"] != 0).sum()) > x.numel() / 2


@each("size", [3e38, 1e-45])
def test_squares_neither_overflow_nor_vanish(size):
    x = torch.full((3, 5), size)
    x[1, 1] = -size
    codec = BoundedRows(0.01, relative_to="rms")
    y = codec.decode(codec.encode(x), (3, 5))
    assert_within(x, y, absolute_bound(x, 0.01, "rms"))
    assert absolute_bound(x, 0.01, "rms") == pytest.approx(0.01 * float(x[0, 0]))


@each("codec", [BoundedRows(0.5, relative_to="rms"), Bounded(0.5, relative_to="rms")])
def test_a_block_whose_rms_is_zero_is_exact(codec):
    x = torch.tensor([[0.0, -0.0, float("nan")], [0.0, float("inf"), 0.0]])
    y = codec.decode(codec.encode(x), (2, 3))
    assert torch.equal(x.view(torch.int32), y.view(torch.int32))


@each("relative_to", ["x", "RMS", 1, True, False, []])
def test_another_kind_of_relative_bound_is_refused(relative_to):
    text = f"bounded_rows.relative_to: expected None, 'range' or 'rms', got {relative_to!r}"
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        BoundedRows(0.1, relative_to=relative_to)


@each("rounding", ["up", "Nearest", None, True, []])
def test_another_rounding_is_refused(rounding):
    text = f"bounded_rows.rounding: expected 'nearest' or 'unbiased', got {rounding!r}"
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        BoundedRows(0.1, rounding=rounding)


@each("codec", [BoundedRows(0.03, relative_to="range"), Bounded(0.5, rounding="unbiased", seed=7)])
def test_what_a_codec_shows_can_be_pasted(codec):
    assert eval(repr(codec)) == codec


def test_only_the_bound_has_no_name():
    with pytest.raises(TypeError, match="positional"):
        BoundedRows(0.1, "range")
    with pytest.raises(TypeError, match="unexpected keyword argument 'dither'"):
        BoundedRows(0.1, dither=0)


def test_a_constant_block_has_relative_bound_zero_and_is_exact():
    x = torch.full((4, 4), 0.1)
    codec = BoundedRows(0.5, relative_to="range")
    assert torch.equal(codec.decode(codec.encode(x), (4, 4)), x)


def test_unbiased_rounding_makes_the_mean_exact():
    """The mean of n roundings of step s deviates by s / (2 sqrt(n)) at most, one sigma; six are allowed."""
    n, bound = 200_000, 0.5
    for value in (0.1, -0.37, 0.499, 1.23):
        x = torch.full((n, 1), value)
        x[0] = 100.0  # not constant
        codec = BoundedRows(bound, rounding="unbiased", seed=11)
        y = codec.decode(codec.encode(x), (n, 1))
        mean = float(y[1:].double().mean())
        assert abs(mean - value) < 6 * bound / (2 * n**0.5)


def test_unbiased_rounding_keeps_zeros():
    x = torch.zeros(100, 8)
    x[50, 3] = 1.0
    codec = BoundedRows(0.3, rounding="unbiased", seed=1)
    y = codec.decode(codec.encode(x), (100, 8))
    assert int((y != 0).sum()) == 1


def test_another_seed_gives_another_rounding_within_the_same_bound():
    torch.manual_seed(0)
    x = torch.randn(100, 16)
    blocks = [BoundedRows(0.1, rounding="unbiased", seed=seed).encode(x) for seed in (0, 1, 2**64 - 1)]
    assert len({tuple(block.tolist()) for block in blocks}) == 3


@each("threads", [1, 2, 3, 8])
def test_bytes_do_not_depend_on_the_number_of_threads(threads):
    torch.manual_seed(0)
    shapes = [(20_000, 64), (50, 8), (0, 4), (3000, 16), (1, 1), (17_000, 64)]
    values = torch.cat([torch.randn(shape).round(decimals=1).reshape(-1) for shape in shapes])
    values[12345] = float("nan")
    codecs = [BoundedRows(0.02), BoundedRows(0.02, relative_to="rms")]
    batch = Batch.of([(codecs[i % 2], shape) for i, shape in enumerate(shapes)])
    buffer, offsets = batch.encode(values, threads=1)
    other, other_offsets = batch.encode(values, threads=threads)
    assert torch.equal(offsets, other_offsets)
    assert torch.equal(buffer, other)
    one, many = batch.decode(buffer, offsets, threads=1), batch.decode(buffer, offsets, threads=threads)
    assert torch.equal(one.view(torch.int32), many.view(torch.int32))


def test_large_blocks_with_absolute_bounds_escape_what_the_sample_missed():
    torch.manual_seed(0)
    x = torch.randn(300_000, 4)
    x.view(-1)[::50_021] = 1e6
    codec = BoundedRows(0.02)
    assert_within(x, codec.decode(codec.encode(x), (300_000, 4)), 0.02)


@pytest.mark.parametrize(
    ("name", "bound", "ratio"),
    [("tb_table1_2048x64", 0.03, 43), ("tb_table5_2048x64", 0.05, 2200), ("kaggle_table5_128x32", 0.03, 98)],
)
def test_real_embedding_batches_shrink_as_published(dump, name, bound, ratio):
    x = dump(name)
    codec = BoundedRows(bound, relative_to="range")
    block = codec.encode(x)
    assert_within(x, codec.decode(block, tuple(x.shape)), absolute_bound(x, bound, "range"))
    assert x.numel() * 4 / block.numel() >= ratio


def test_a_block_without_duplicates_is_close_to_its_entropy():
    torch.manual_seed(0)
    x = torch.randn(100_000, 16)
    codec = BoundedRows(0.02)
    codes = torch.round(x.double() / 0.04).long()
    _, counts = torch.unique(codes, return_counts=True)
    p = counts.double() / counts.sum()
    entropy_bytes = float(-(p * p.log2()).sum()) * x.numel() / 8
    assert entropy_bytes / codec.encode(x).numel() >= 0.985


@each("bound", [0, -1.0, float("nan"), float("inf"), "0.1", None, True])
def test_a_bound_that_is_no_positive_number_is_refused(bound):
    with pytest.raises(ConfigError, match=r"bounded_rows\.bound: expected"):
        BoundedRows(bound)


@each("seed", [1.5, "x", 2**64, -(2**63) - 1, True])
def test_a_seed_that_does_not_fit_is_refused(seed):
    with pytest.raises(ConfigError, match=r"bounded_rows\.seed: expected an integer of at most 64 bits, got"):
        BoundedRows(0.1, rounding="unbiased", seed=seed)
