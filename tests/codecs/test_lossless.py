"""Lossless: every bit comes back, in fewer bytes where there is something to win."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic import Batch, Cast, Frame, Lossless
from laconic.codecs.inspect import explain
from tests.cases import each
from tests.codecs.matrices import awkward, matrices, raw_matrices


def assert_kept(x):
    y = Lossless().decode(Lossless().encode(x), tuple(x.shape))
    assert torch.equal(y.view(torch.int32), x.view(torch.int32))


@settings(max_examples=60)
@given(x=matrices())
def test_every_value_comes_back_as_it_was(x):
    assert_kept(x)


@settings(max_examples=60)
@given(x=raw_matrices, zeros=st.floats(0, 1))
def test_every_bit_pattern_comes_back(x, zeros):
    assert_kept(torch.where(torch.rand(x.shape) < zeros, 0.0, x))


@each("name", list(awkward()))
def test_awkward_matrices_come_back_in_a_byte_more_at_most(name):
    x = awkward()[name]
    assert_kept(x)
    assert Lossless().encode(x).numel() <= 4 * x.numel() + 1


def test_payloads_of_nan_signs_of_zero_and_subnormals_are_bits_like_others():
    words = [0x7F800001, 0xFFC12345, 0x7FC00000, 0x80000000, 0x0, 0x1, 0x807FFFFF, 0x7F800000, 0xFF800000]
    x = torch.tensor(words * 50).to(torch.uint32).view(torch.float32)
    assert_kept(x)


def test_normal_values_take_less_than_twenty_seven_bits():
    torch.manual_seed(0)
    x = torch.randn(500, 64) * 1e-3
    assert Lossless().encode(x).numel() * 8 / x.numel() < 26.7  # 24, and 2.55 that the exponents hold


def test_zeros_take_less_than_a_bit():
    torch.manual_seed(0)
    live = torch.rand(512, 1) < 0.4  # units that are dead for a whole batch have no gradient at all
    x = torch.where(live, torch.randn(512, 64), 0.0)
    full = Lossless().encode(x[live[:, 0]]).numel()
    assert Lossless().encode(x).numel() <= full + 0.5 * int((~live).sum()) * 64 / 8


def test_what_cannot_be_made_smaller_is_stored():
    torch.manual_seed(0)
    x = torch.randint(-(2**31), 2**31, (300,)).to(torch.int32).view(torch.float32)
    assert Lossless().encode(x).numel() == 4 * 300 + 1


def test_a_batch_can_mix_it_with_others():
    torch.manual_seed(0)
    first, second = torch.randn(40, 16), torch.randn(3000, 16)
    batch = Batch.of([(Cast("fp32"), (40, 16)), (Lossless(), (3000, 16))])
    values = batch.decode(*batch.encode(torch.cat([first, second])))
    assert torch.equal(values, torch.cat([first, second]).flatten())


@each("share", [1.0, 0.3])
def test_threads_change_no_byte_of_a_large_block(share):
    torch.manual_seed(0)
    n = (1 << 20) + 12_345  # from 2^20 values on, a block has all threads for itself
    x = torch.where(torch.rand(n) < share, torch.randn(n), 0.0)
    batch = Batch.of([(Lossless(), (n,))])
    blocks = [batch.encode(x, threads=threads) for threads in (1, 3)]
    assert torch.equal(blocks[0][0], blocks[1][0])
    for threads in (1, 3):
        assert torch.equal(batch.decode(*blocks[0], threads=threads), x)


def test_inspect_says_what_a_block_consists_of():
    torch.manual_seed(0)
    x = torch.where(torch.arange(40).view(40, 1) % 8 == 3, torch.randn(40, 9), 0.0)
    fields = {field.name: field.value for field in explain(Frame.of(Lossless(), x).to_bytes())}
    assert fields["wire id"] == "Lossless (9)"
    assert fields["form"] == "sparse (3)"
    assert fields["signs and mantissas"] == "135 bytes"
    assert fields["exponents: sequence kind"] == "packed, width 3"
