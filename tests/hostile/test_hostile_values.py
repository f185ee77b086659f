"""Values chosen against an encoder come back within the bound, and all kernels write alike."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from laconic.kernels.blocks import DITHERED, RELATIVE, BlockSpec, Kind
from tests.cases import each
from tests.hostile.decoding import NAMES, decode_block, encode_block

every_kernels = pytest.mark.parametrize("name", NAMES)
BOUNDED = (Kind.ROWS, Kind.VECTOR_LZ, Kind.HUFFMAN, Kind.HYBRID)

SPECIALS = torch.tensor(
    [0x0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x1, 0x7F7FFFFF, 0xFF7FFFFF]
)
ANY_BITS = SPECIALS.repeat(4).to(torch.uint32).view(torch.float32).view(6, 6)


def twelve_bit_symbols() -> Tensor:
    """1020 groups of four codes, of which every first stream's has a static code of twelve bits."""
    groups = [g for g in itertools.product((-2, -1, 0, 1), repeat=4) if sum(map(abs, g)) in (3, 4)]
    rare = itertools.cycle(groups)
    codes = [next(rare) if symbol // 4 % 6 == 0 else (0, 0, 0, 0) for symbol in range(1020)]
    return torch.tensor(codes, dtype=torch.float32).view(1, -1)


# under a bound of 1/2, a value is about its code
ATTACKS = {
    "wide codes that fit eight bits, above": torch.tensor([[0.0] * 6 + [131, 140, 150, 180, 200]]),
    "wide codes that fit eight bits, below": torch.tensor([[0.0] * 4 + [-131, -140, -150, -180, -200]]),
    "wide codes that fit eight bits, repeated": torch.tensor([[0.0, 0, 0, 200]] * 6 + [[0.0, 0, 0, 140]] * 2),
    "a stream as long as codes allow": twelve_bit_symbols(),
    "codes at both ends of int8": torch.tensor([[-128.0, 127, 0, 0, -127, 126, 5, -5]]),
    "codes at both ends of int16": torch.tensor([[-32768.0, 32767, 0, 0, -32767, 32766, 5, -5]]),
    "codes beyond 2^22": torch.tensor([[5e6, 5e6 + 1, 5e6 + 2, -5e6, 4194304, 4194303.5]]),
    "a range that overflows": torch.tensor([[3.4e38, -3.4e38, 0, 1, 2, 3]]),
    "one value among NaN": torch.tensor([[float("nan")] * 5 + [3.0]]),
    "infinities alone": torch.tensor([[float("inf"), -float("inf"), float("inf")]]),
    "halves": torch.arange(-64, 64).view(8, 16) + 0.5,
    "any bits": ANY_BITS,
}


def assert_within(x: Tensor, y: Tensor, bound: float, flags: int) -> None:
    finite = x[x.isfinite()].double()
    if flags & RELATIVE:
        bound *= (finite.max() - finite.min()).item() if len(finite) else 0.0
    assert torch.equal(y.isnan(), x.isnan())
    assert torch.equal(y[x.isinf()], x[x.isinf()])
    assert not len(finite) or (y[x.isfinite()].double() - finite).abs().max() <= bound


@each("kind", BOUNDED)
@each("flags", [0, RELATIVE, DITHERED, RELATIVE | DITHERED])
@each("attack", ATTACKS)
def test_values_against_the_encoder_are_within_the_bound(kind, flags, attack):
    x = ATTACKS[attack]
    for bound in (0.5, 1e-3, 1e-320, 1e300):
        spec = BlockSpec(kind, bound=bound, flags=flags, seed=3, window=8)
        block = encode_block("scalar", spec, x, threads=2)
        assert len(block) <= 4 * x.numel() + 1
        y = decode_block("scalar", kind, tuple(x.shape), block)
        assert_within(x, y.view(x.shape), bound, flags)
        for name in NAMES:
            assert encode_block(name, spec, x) == block, name
            again = decode_block(name, kind, tuple(x.shape), block)
            assert torch.equal(again.view(torch.int32), y.view(torch.int32)), name


@every_kernels
@each("kind", list(Kind))
@each("shape", [(0, 0), (0, 5), (5, 0), (2**32 - 1, 0), (0, 2**32 - 1)])
def test_a_shape_without_values_takes_no_bytes(name, kind, shape):
    spec = BlockSpec(kind)
    for threads in (1, 2):
        assert encode_block(name, spec, torch.empty(shape), threads) == b""
    assert decode_block(name, kind, shape, b"").numel() == 0
