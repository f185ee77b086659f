"""Valid blocks of every form, damaged: they decode or are refused, and all kernels agree which."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from laconic.errors import FormatError
from laconic.kernels.blocks import BlockSpec, Kind
from tests.hostile.decoding import NAMES, decode_block, decode_ids, encode_block, encode_ids, outcome

every_kernels = pytest.mark.parametrize("name", NAMES)


def normal(rows: int, cols: int, spread: float) -> Tensor:
    """Values whose standard deviation is ``spread`` steps, under a bound of 1/2."""
    return torch.randn(rows, cols, generator=torch.Generator().manual_seed(rows + cols)) * spread


def repeated(rows: int, cols: int, spread: float, distinct: int) -> Tensor:
    table = normal(distinct, cols, spread)
    chosen = torch.randint(0, distinct, (rows,), generator=torch.Generator().manual_seed(rows))
    return table[chosen]


def with_specials(x: Tensor) -> Tensor:
    x = x.clone()
    x.view(-1)[::9] = float("nan")
    x.view(-1)[4] = 1e30
    return x


def spiked(x: Tensor, every: int) -> Tensor:
    """Plant codes that no group of digits can hold."""
    x = x.clone()
    planted = x.view(-1)[::every]
    planted.copy_(torch.arange(len(planted)) % 50 + 40)
    return x


# what the block shall be like: its first byte, and values that make it so
BLOCKS = {
    "constant": (Kind.ROWS, 0, torch.full((3, 4), 0.3)),
    "stored": (Kind.ROWS, 1, normal(2, 4, 1e30)),
    "packed": (Kind.ROWS, 2, normal(2, 8, 10)),
    "packed and wide": (Kind.ROWS, 2, normal(2, 8, 5000)),
    "packed with patches": (Kind.ROWS, 2, with_specials(normal(2, 12, 20))),
    "entropy, groups of four": (Kind.ROWS, 3, normal(12, 16, 0.4)),
    "entropy, groups of two": (Kind.ROWS, 3, normal(12, 8, 1.5)),
    "entropy, single digits": (Kind.ROWS, 3, normal(8, 16, 9)),
    "entropy and wide": (Kind.ROWS, 3, normal(8, 16, 120)),
    "entropy in six streams": (Kind.ROWS, 3, normal(10, 40, 5)),
    "entropy with patches": (Kind.ROWS, 3, with_specials(normal(12, 8, 4))),
    "few outliers": (Kind.ROWS, 3, spiked(normal(16, 16, 0.5), 60)),
    "many outliers": (Kind.ROWS, 3, spiked(normal(16, 16, 0.5), 7)),
    "sparse": (Kind.ROWS, 2, spiked(torch.zeros(16, 16), 9)),
    "deduplicated": (Kind.ROWS, 4, repeated(30, 4, 4, 5)),
    "deduplicated with single rows": (Kind.ROWS, 4, torch.cat([repeated(20, 6, 4, 3), normal(6, 6, 9)])),
    "deduplicated and wide": (Kind.ROWS, 4, repeated(20, 4, 300, 6)),
    "vector LZ": (Kind.VECTOR_LZ, 5, with_specials(repeated(20, 4, 4, 5))),
    "Huffman": (Kind.HUFFMAN, 6, with_specials(normal(8, 8, 4))),
    "Huffman in six streams": (Kind.HUFFMAN, 6, normal(10, 40, 3)),
    "float16": (Kind.FLOAT16, None, normal(3, 3, 1)),
    "bfloat16": (Kind.BFLOAT16, None, normal(3, 3, 1)),
    "int8": (Kind.INT8, None, normal(3, 3, 1)),
    "int4": (Kind.INT4, None, normal(3, 3, 1)),
}

IDS = {
    "none": torch.empty(0, dtype=torch.int64),
    "one": torch.tensor([5]),
    "stored": torch.tensor([2**63 - 1, -(2**63), 0, 2**62, -1]),
    "ascending": torch.arange(0, 900, 3),
    "ascending and far apart": torch.arange(40) ** 4 * 1000,
    "differences": torch.arange(60) * 1000 + torch.arange(60) % 7 * -900,
    "offsets": torch.randperm(3000, generator=torch.Generator().manual_seed(1))[:80] + 10**12,
    "six streams": torch.arange(500) * 5 + torch.arange(500) % 3,
}

DAMAGE = (0x01, 0x80, 0xFF)  # bits to flip in one byte


def block_of(kind: Kind, x: Tensor) -> bytes:
    return encode_block("scalar", BlockSpec(kind, bound=0.5, window=16), x)


def damaged(block: bytes) -> list[bytes]:
    return [
        block[:i] + bytes([block[i] ^ bits]) + block[i + 1 :] for i in range(len(block)) for bits in DAMAGE
    ]


@pytest.mark.parametrize("case", BLOCKS)
def test_the_blocks_have_the_form_they_stand_for(case):
    kind, form, x = BLOCKS[case]
    assert form is None or block_of(kind, x)[0] == form


@every_kernels
@pytest.mark.parametrize("case", BLOCKS)
def test_a_block_cut_anywhere_is_refused(name, case):
    kind, _, x = BLOCKS[case]
    block = block_of(kind, x)
    for size in range(len(block)):
        with pytest.raises(FormatError):
            decode_block(name, kind, tuple(x.shape), block[:size])


@every_kernels
@pytest.mark.parametrize("case", BLOCKS)
def test_a_byte_more_is_refused(name, case):
    kind, _, x = BLOCKS[case]
    with pytest.raises(FormatError, match=r"^block: "):
        decode_block(name, kind, tuple(x.shape), block_of(kind, x) + b"\0")


@every_kernels
@pytest.mark.parametrize("case", BLOCKS)
def test_a_block_with_one_wrong_byte_decodes_alike_everywhere_or_is_refused(name, case):
    kind, _, x = BLOCKS[case]
    for block in damaged(block_of(kind, x)):
        arguments = (kind, tuple(x.shape), block)
        assert outcome(decode_block, name, *arguments) == outcome(decode_block, "scalar", *arguments)


@every_kernels
@pytest.mark.parametrize("case", [case for case in BLOCKS if BLOCKS[case][1] is not None])
def test_a_block_of_another_shape_decodes_alike_everywhere_or_is_refused(name, case):
    kind, _, x = BLOCKS[case]
    rows, cols = x.shape
    block = block_of(kind, x)
    for shape in [
        (rows + 1, cols),
        (rows - 1, cols),
        (rows, cols + 1),
        (cols, rows),
        (rows * cols, 1),
        (1, 1),
    ]:
        for other in (Kind.ROWS, Kind.HYBRID):
            assert outcome(decode_block, name, other, shape, block) == outcome(
                decode_block, "scalar", other, shape, block
            )


@every_kernels
@pytest.mark.parametrize("case", IDS)
def test_a_list_of_ids_cut_anywhere_is_refused(name, case):
    block = encode_ids("scalar", IDS[case])
    assert torch.equal(decode_ids(name, len(IDS[case]), block), IDS[case])
    for size in range(len(block)):
        with pytest.raises(FormatError):
            decode_ids(name, len(IDS[case]), block[:size])
    with pytest.raises(FormatError, match=r"^block: "):
        decode_ids(name, len(IDS[case]), block + b"\0")


@every_kernels
@pytest.mark.parametrize("case", IDS)
def test_a_list_of_ids_with_one_wrong_byte_decodes_alike_everywhere_or_is_refused(name, case):
    count = len(IDS[case])
    for block in damaged(encode_ids("scalar", IDS[case])):
        assert outcome(decode_ids, name, count, block) == outcome(decode_ids, "scalar", count, block)
