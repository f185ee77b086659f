"""Valid blocks of every form, damaged: they decode or are refused, and all kernels agree which."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from laconic.errors import FormatError
from laconic.kernels.blocks import BlockSpec, Kind
from laconic.kernels.reference.blocks.batch import describe_block, describe_ids
from laconic.kernels.reference.byte_io import Field
from tests.cases import each
from tests.hostile.decoding import (
    NAMES,
    as_tensor,
    decode_block,
    decode_ids,
    encode_block,
    encode_ids,
    outcome,
)

every_kernels = pytest.mark.parametrize("name", NAMES)
OTHERS = [name for name in NAMES if name != "scalar"]


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


# values, and words from the description of the block that they shall become
BLOCKS = {
    "constant": (Kind.ROWS, torch.full((3, 4), 0.3), ["form constant"]),
    "stored": (Kind.ROWS, normal(2, 4, 1e30), ["form stored"]),
    "packed": (Kind.ROWS, normal(2, 8, 10), ["form packed", "kind packed, width 6"]),
    "packed and wide": (Kind.ROWS, normal(2, 8, 5000), ["form packed", "kind packed, width 15"]),
    "packed with patches": (Kind.ROWS, with_specials(normal(2, 12, 20)), ["form packed", "patches 4"]),
    "groups of four": (Kind.ROWS, normal(12, 16, 0.4), ["form entropy", "groups of 4"]),
    "groups of two": (Kind.ROWS, normal(12, 8, 1.5), ["form entropy", "groups of 2"]),
    "single digits": (Kind.ROWS, normal(8, 16, 9), ["form entropy", "kind static"]),
    "entropy and wide": (Kind.ROWS, normal(8, 16, 120), ["form entropy", "low bits 2"]),
    "entropy in six streams": (Kind.ROWS, normal(10, 40, 5), ["form entropy", "stream sizes"]),
    "entropy with patches": (Kind.ROWS, with_specials(normal(12, 8, 4)), ["form entropy", "patches 12"]),
    "few outliers": (
        Kind.ROWS,
        spiked(normal(16, 16, 0.2), 40),
        ["form entropy", "outliers 7", "groups of 4"],
    ),
    "many outliers": (
        Kind.ROWS,
        spiked(normal(32, 16, 0.3), 23),
        ["form entropy", "outliers 23", "groups of 4"],
    ),
    "sparse": (
        Kind.ROWS,
        spiked(torch.zeros(16, 16), 9),
        ["form packed", "kind packed, width 0", "outliers 29"],
    ),
    "deduplicated": (Kind.ROWS, repeated(30, 4, 4, 5), ["form deduplicated", "single rows 0"]),
    "deduplicated with single rows": (
        Kind.ROWS,
        torch.cat([repeated(20, 6, 4, 3), normal(6, 6, 9)]),
        ["form deduplicated", "single rows 6"],
    ),
    "deduplicated and wide": (Kind.ROWS, repeated(20, 4, 300, 6), ["form deduplicated", "width 11"]),
    "vector LZ": (Kind.VECTOR_LZ, with_specials(repeated(20, 4, 4, 5)), ["form vector lz", "patches 10"]),
    "Huffman": (Kind.HUFFMAN, with_specials(normal(8, 8, 4)), ["form huffman", "patches 9"]),
    "Huffman in six streams": (Kind.HUFFMAN, normal(10, 40, 3), ["form huffman", "stream sizes"]),
    "lossless constant": (Kind.LOSSLESS, torch.full((3, 4), -0.0), ["form constant"]),
    "lossless stored": (Kind.LOSSLESS, with_specials(normal(1, 5, 1)), ["form stored"]),
    "lossless full": (Kind.LOSSLESS, with_specials(normal(12, 8, 1)), ["form full", "largest exponent 255"]),
    "lossless with equal exponents": (Kind.LOSSLESS, normal(5, 7, 1).sign(), ["kind packed, width 0"]),
    "lossless sparse": (
        Kind.LOSSLESS,
        torch.where(torch.arange(40).view(40, 1) % 8 == 3, normal(40, 9, 1), 0.0),
        ["form sparse", "nonzero flags: sequence kind static, groups of 8"],
    ),
    "lossless sparse, flags as they are": (
        Kind.LOSSLESS,
        torch.where(torch.arange(18).view(2, 9) % 5 != 0, normal(2, 9, 1), 0.0),
        ["form sparse", "nonzero flags: sequence kind packed, width 1"],
    ),
    "float32": (Kind.FLOAT32, normal(3, 3, 1), []),
    "float16": (Kind.FLOAT16, normal(3, 3, 1), []),
    "bfloat16": (Kind.BFLOAT16, normal(3, 3, 1), []),
    "int8": (Kind.INT8, normal(3, 3, 1), []),
    "int4": (Kind.INT4, normal(3, 3, 1), []),
}

IDS = {
    "none": (torch.empty(0, dtype=torch.int64), "form stored"),
    "stored": (torch.tensor([2**63 - 1]), "form stored"),
    "one": (torch.tensor([5]), "form ascending"),
    "ascending": (torch.arange(0, 900, 3), "form ascending"),
    "ascending and far apart": (torch.arange(40) ** 4 * 1000, "form ascending"),
    "differences": (torch.arange(60) * 1000 + torch.arange(60) % 2 * 1400, "form differences"),
    "offsets": (
        torch.randperm(3000, generator=torch.Generator().manual_seed(1))[:80] + 10**12,
        "form offsets",
    ),
    "six streams": (torch.arange(500) * 5 + torch.arange(500) % 3, "stream sizes"),
}

DAMAGE = (0x01, 0x80, 0xFF)  # bits to flip in one byte
HEADS = 24  # bytes with fields of their own, where all of that is done; to codes behind them in turn


def block_of(kind: Kind, x: Tensor) -> bytes:
    return encode_block("scalar", BlockSpec(kind, bound=0.5, window=16), x)


def damaged(block: bytes) -> list[bytes]:
    return [
        block[:i] + bytes([block[i] ^ bits]) + block[i + 1 :]
        for i in range(len(block))
        for bits in (DAMAGE if i < HEADS else DAMAGE[i % 3 : i % 3 + 1])
    ]


def assert_alike(decode, *arguments) -> None:
    """All kernels give the same values, or refuse with the same words."""
    expected = outcome(decode, "scalar", *arguments)
    assert [name for name in OTHERS if outcome(decode, name, *arguments) != expected] == []


def words(fields: list[Field]) -> str:
    return "; ".join(f"{field.name} {field.value}" for field in fields)


@each("case", BLOCKS)
def test_the_blocks_are_what_they_stand_for(case):
    kind, x, expected = BLOCKS[case]
    described = words(describe_block(kind, as_tensor(block_of(kind, x)), *x.shape))
    assert [word for word in expected if word not in described] == []


@each("case", IDS)
def test_the_lists_of_ids_are_what_they_stand_for(case):
    ids, expected = IDS[case]
    assert expected in words(describe_ids(as_tensor(encode_ids("scalar", ids))))


@every_kernels
@each("case", BLOCKS)
def test_a_block_cut_anywhere_is_refused(name, case):
    kind, x, _ = BLOCKS[case]
    block = block_of(kind, x)
    for size in range(len(block)):
        with pytest.raises(FormatError):
            decode_block(name, kind, tuple(x.shape), block[:size])


@every_kernels
@each("case", BLOCKS)
def test_a_byte_more_is_refused(name, case):
    kind, x, _ = BLOCKS[case]
    with pytest.raises(FormatError, match=r"^block: "):
        decode_block(name, kind, tuple(x.shape), block_of(kind, x) + b"\0")


@each("case", BLOCKS)
def test_a_block_with_one_wrong_byte_decodes_alike_everywhere_or_is_refused(case):
    kind, x, _ = BLOCKS[case]
    for block in damaged(block_of(kind, x)):
        assert_alike(decode_block, kind, tuple(x.shape), block)


@each("case", [case for case in BLOCKS if BLOCKS[case][2]])
def test_a_block_of_another_shape_decodes_alike_everywhere_or_is_refused(case):
    kind, x, _ = BLOCKS[case]
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
            assert_alike(decode_block, other, shape, block)


@every_kernels
@each("case", IDS)
def test_a_list_of_ids_cut_anywhere_is_refused(name, case):
    ids, _ = IDS[case]
    block = encode_ids("scalar", ids)
    assert torch.equal(decode_ids(name, len(ids), block), ids)
    for size in range(len(block)):
        with pytest.raises(FormatError):
            decode_ids(name, len(ids), block[:size])
    with pytest.raises(FormatError, match=r"^block: "):
        decode_ids(name, len(ids), block + b"\0")


@each("case", IDS)
def test_a_list_of_ids_with_one_wrong_byte_decodes_alike_everywhere_or_is_refused(case):
    ids, _ = IDS[case]
    for block in damaged(encode_ids("scalar", ids)):
        assert_alike(decode_ids, len(ids), block)
