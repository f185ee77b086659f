"""One suite for every codec of matrices: what the protocol promises, whatever the input."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic import Batch, Bounded, BoundedRows, Cast, Huffman, Hybrid, Lossless, VectorLz
from laconic.errors import ConfigError, FormatError
from tests.cases import each
from tests.codecs.guarantee import absolute_bound, assert_within
from tests.codecs.matrices import awkward, bounds, matrices, raw_matrices

BOUNDED = [BoundedRows, Bounded, VectorLz, Huffman, Hybrid]
CODECS = [
    *(cls(bound=0.02) for cls in BOUNDED),
    *(cls(bound=0.03, relative_to="range") for cls in BOUNDED),
    *(cls(bound=0.1, relative_to="rms") for cls in BOUNDED),
    BoundedRows(0.1, rounding="unbiased", seed=7),
    Lossless(),
    *(Cast(dtype) for dtype in ("fp32", "fp16", "bf16", "int8", "int4")),
]
every_codec = each("codec", CODECS)
RELATIVE_TO = (None, "range", "rms")
seeds = st.integers(-(2**63), 2**64 - 1)
every_bounded = each("cls", BOUNDED)


def assert_guarantee(codec, x):
    y = codec.decode(codec.encode(x), tuple(x.shape))
    assert_within(x, y, absolute_bound(x, codec.bound, codec.relative_to))


@pytest.mark.parametrize("cls", BOUNDED, ids=lambda cls: cls.__name__)
@settings(max_examples=50)
@given(x=matrices(), bound=bounds, relative_to=st.sampled_from(RELATIVE_TO))
def test_every_value_is_within_the_bound(cls, x, bound, relative_to):
    assert_guarantee(cls(bound, relative_to=relative_to), x)


@settings(max_examples=100)
@given(
    x=raw_matrices,
    bound=bounds,
    relative_to=st.sampled_from(RELATIVE_TO),
    rounding=st.sampled_from(["nearest", "unbiased"]),
    seed=seeds,
)
def test_every_bit_pattern_is_within_the_bound(x, bound, relative_to, rounding, seed):
    assert_guarantee(BoundedRows(bound, relative_to=relative_to, rounding=rounding, seed=seed), x)


@every_bounded
@each("name", list(awkward()))
def test_awkward_matrices_are_within_the_bound(cls, name):
    x = awkward()[name]
    for bound in (1e-30, 1e-6, 1e-4, 1e-3, 0.02, 0.5, 1e30):
        for relative_to in RELATIVE_TO:
            assert_guarantee(cls(bound, relative_to=relative_to), x)


@every_codec
def test_a_block_is_never_longer_than_max_bytes(codec):
    for name, x in awkward().items():
        assert codec.encode(x).numel() <= codec.max_bytes(tuple(x.shape)), name


@every_bounded
def test_a_block_exceeds_the_raw_size_by_one_byte_at_most(cls):
    for name, x in awkward().items():
        assert cls(bound=1e-12).encode(x).numel() <= 4 * x.numel() + 1, name


@every_codec
def test_the_same_input_gives_the_same_bytes(codec):
    for name, x in awkward().items():
        assert torch.equal(codec.encode(x), codec.encode(x.clone())), name


@every_codec
@each("shape", [(), (5,), (3, 4), (2, 3, 4), (2, 1, 3, 4), (0,), (3, 0, 2)])
def test_any_number_of_dimensions_comes_back(codec, shape):
    x = torch.randn(shape)
    assert codec.decode(codec.encode(x), shape).shape == x.shape


@every_codec
def test_strided_input_is_read_in_its_own_order(codec):
    x = torch.randn(40, 30)[::2, ::3].t()
    assert torch.equal(codec.encode(x), codec.encode(x.contiguous()))


@every_codec
def test_input_that_requires_grad_is_just_values(codec):
    x = torch.randn(8, 4, requires_grad=True)
    block = codec.encode(x)
    assert torch.equal(block, codec.encode(x.detach()))
    assert not codec.decode(block, (8, 4)).requires_grad


@every_codec
@each("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_input_is_widened_exactly(codec, dtype):
    x = torch.randn(50, 16).to(dtype)
    assert torch.equal(codec.encode(x), codec.encode(x.float()))


@every_codec
@each("dtype", [torch.float64, torch.int32, torch.bool, torch.complex64])
def test_other_types_are_refused_with_the_remedy(codec, dtype):
    with pytest.raises(
        ConfigError, match=r"expected float32, float16 or bfloat16, got .*; convert with x\.float\(\)"
    ):
        codec.encode(torch.zeros(3, 3, dtype=dtype))


@every_bounded
@each("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_decoding_to_another_type_is_refused_because_it_could_break_the_bound(cls, dtype):
    codec = cls()
    with pytest.raises(ConfigError, match="decode to float32 and convert"):
        codec.decode(codec.encode(torch.ones(2, 2)), (2, 2), dtype)


@every_codec
def test_a_codec_is_its_configuration(codec):
    assert codec == dataclasses.replace(codec)
    assert hash(codec) == hash(dataclasses.replace(codec))
    assert repr(codec).startswith(type(codec).__name__ + "(")
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(codec, next((field.name for field in dataclasses.fields(codec)), "bound"), 3)


@every_codec
def test_any_instance_decodes_what_another_one_encoded(codec):
    x = torch.randn(64, 8)
    stranger = codec if isinstance(codec, Cast | Lossless) else type(codec)(bound=123.0)
    block = codec.encode(x)
    assert torch.equal(stranger.decode(block, (64, 8)), codec.decode(block, (64, 8)))


@pytest.mark.parametrize("codec", CODECS, ids=repr)
@settings(max_examples=40)
@given(data=st.binary(max_size=200), rows=st.integers(0, 20), cols=st.integers(0, 8))
def test_any_bytes_decode_or_raise_a_format_error(codec, data, rows, cols):
    block = torch.tensor(list(data), dtype=torch.uint8)
    try:
        y = codec.decode(block, (rows, cols))
    except FormatError:
        return
    assert y.shape == (rows, cols)


@every_codec
def test_many_blocks_are_what_single_blocks_are(codec):
    other = awkward()["repeated rows"]
    between = BoundedRows().encode(other)
    for name, x in awkward().items():
        ends = (codec, tuple(x.shape))
        batch = Batch.of([ends, (BoundedRows(), tuple(other.shape)), ends])
        values = torch.cat([x.reshape(-1), other.reshape(-1), x.reshape(-1)])
        block = codec.encode(x)
        single = codec.decode(block, tuple(x.shape)).reshape(-1).view(torch.int32)
        for threads in (1, 2, 5):
            buffer, offsets = batch.encode(values, threads=threads)
            assert torch.equal(buffer, torch.cat([block, between, block])), name
            decoded = batch.decode(buffer, offsets, threads=threads)
            assert torch.equal(decoded[: x.numel()].view(torch.int32), single), name
