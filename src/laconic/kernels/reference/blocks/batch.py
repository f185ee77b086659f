"""Many blocks in one call: each its own kind, shape and bound, all in one buffer.

Buffers are arrays of the caller's; tensors that share their memory are made here.

What every byte of a block says is the decoder's own trace, in the order of the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import isfinite
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.errors import FormatError
from laconic.kernels.blocks import (
    DITHERED,
    MAX_CALL_VALUES,
    MAX_VALUES,
    RELATIVE,
    RMS_RELATIVE,
    BlockTable,
    Kind,
)
from laconic.kernels.reference.blocks.cast import cast_bytes, decode_cast, encode_cast
from laconic.kernels.reference.blocks.lossless import decode_lossless, encode_lossless
from laconic.kernels.reference.blocks.quantized_block import max_block_bytes
from laconic.kernels.reference.blocks.rows_block import decode_rows, encode_rows
from laconic.kernels.reference.blocks.sc24_blocks import (
    better_of,
    decode_sc24,
    encode_huffman,
    encode_vector_lz,
)
from laconic.kernels.reference.byte_io import Field, Reader, from_bytes, to_bytes
from laconic.kernels.reference.quantize.grid import BoundSpec, Relative
from laconic.kernels.reference.sequence import id_list

__all__ = ["Field", "describe_block", "describe_ids"]


def describe_block(kind: Kind, block: Tensor, rows: int, cols: int) -> list[Field]:
    """Fields of a block, without gap or overlap; ``FormatError`` if it cannot be decoded."""
    trace: list[Field] = []
    decode_block(kind, Reader(to_bytes(block), trace), rows, cols)
    return sorted(trace, key=lambda field: field.offset)


def describe_ids(block: Tensor) -> list[Field]:
    """Fields of a list of ids, without gap or overlap; ``FormatError`` if it cannot be decoded."""
    trace: list[Field] = []
    data = to_bytes(block)
    id_list.decode_ids(Reader(data, trace), id_list.count_ids(Reader(data)))
    return sorted(trace, key=lambda field: field.offset)


Array = NDArray[Any]

_RELATIVE = {0: Relative.NO, RELATIVE: Relative.TO_RANGE, RMS_RELATIVE: Relative.TO_RMS}


@dataclass(frozen=True, slots=True)
class Block:
    """One row of the table."""

    kind: Kind
    rows: int
    cols: int
    bound: BoundSpec
    window: int
    lz_penalty: float
    huffman_penalty: float

    def max_bytes(self) -> int:
        """Room that the block may take."""
        if Kind.FLOAT16 <= self.kind <= Kind.FLOAT32:
            return cast_bytes(self.kind, self.rows, self.cols)
        return max_block_bytes(self.rows * self.cols)

    def encode(self, x_N: Tensor) -> bytes:
        """Encode its values, given row by row."""
        rows, cols = self.rows, self.cols
        if self.kind == Kind.ROWS:
            return encode_rows(x_N, rows, cols, self.bound)
        if self.kind == Kind.VECTOR_LZ:
            return encode_vector_lz(x_N, rows, cols, self.bound, self.window)
        if self.kind == Kind.HUFFMAN:
            return encode_huffman(x_N, self.bound)
        if self.kind == Kind.HYBRID:
            lz = encode_vector_lz(x_N, rows, cols, self.bound, self.window)
            huffman = encode_huffman(x_N, self.bound)
            return better_of(lz, huffman, len(x_N), (self.lz_penalty, self.huffman_penalty))
        if self.kind == Kind.LOSSLESS:
            return encode_lossless(x_N)
        return encode_cast(self.kind, x_N, rows, cols)


def decode_block(kind: Kind, reader: Reader, rows: int, cols: int) -> Tensor:
    """Decode one block of any kind, row by row."""
    if kind == Kind.ROWS:
        return decode_rows(reader, rows, cols)
    if kind in (Kind.VECTOR_LZ, Kind.HUFFMAN, Kind.HYBRID):
        return decode_sc24(reader, rows, cols)
    if kind == Kind.LOSSLESS:
        return decode_lossless(reader, rows * cols)
    return decode_cast(kind, reader, rows, cols)


def check(truth: bool, message: str) -> None:
    """Refuse a call whose arguments do not fit each other."""
    if not truth:
        raise ValueError(message)


def read_table(table: BlockTable) -> list[Block]:
    """Blocks of a table, checked."""
    blocks = []
    rows_of_table = zip(table.longs_N6.tolist(), table.doubles_N3.tolist(), strict=True)
    for i, ((kind, rows, cols, flags, seed, window), (bound, lz, huffman)) in enumerate(rows_of_table):
        check(
            0 <= kind <= max(Kind)
            and 0 <= rows <= MAX_VALUES
            and cols >= 0
            and rows * cols <= MAX_VALUES
            and 0 <= flags < 8
            and flags & (RELATIVE | RMS_RELATIVE) in _RELATIVE
            and 1 <= window <= 255
            and isfinite(bound)
            and bound > 0,
            f"block {i}: kind, shape, flags, window or bound out of range",
        )
        relative = _RELATIVE[flags & (RELATIVE | RMS_RELATIVE)]
        spec = BoundSpec(bound, relative, bool(flags & DITHERED), seed % 2**64)
        blocks.append(Block(Kind(kind), rows, cols, spec, window, lz, huffman))
    check(sum(b.rows * b.cols for b in blocks) <= MAX_CALL_VALUES, "more than 2^40 values in one call")
    return blocks


def read_counts(counts: Array) -> list[int]:
    """Lengths of lists, checked."""
    lengths: list[int] = counts.tolist()
    fits = all(0 <= n <= MAX_VALUES for n in lengths) and sum(lengths) <= MAX_CALL_VALUES
    check(fits, "a count is out of range")
    return lengths


def parts(x: Array, sizes: list[int]) -> list[Tensor]:
    """Cut an array into neighbors of these sizes."""
    values = torch.as_tensor(x)
    return [values[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]


def write_blocks(blocks: list[bytes], out: Array, offsets: Array) -> None:
    """Put blocks into ``out``, back to back."""
    ends = [0, *accumulate(map(len, blocks))]
    torch.as_tensor(out)[: ends[-1]] = from_bytes(b"".join(blocks), torch.uint8)
    torch.as_tensor(offsets)[:] = torch.tensor(ends)


def reader_of(block: Array) -> Reader:
    """Reader of a single block."""
    return Reader(to_bytes(torch.as_tensor(block)))


def readers(block: Array, offsets: Array) -> list[Reader]:
    """Readers of all blocks; offsets must ascend inside the buffer."""
    data, bounds = to_bytes(torch.as_tensor(block)), offsets.tolist()
    for i, (start, end) in enumerate(pairwise(bounds)):
        if not 0 <= start <= end <= len(data):
            raise FormatError(
                f"block {i}: offsets {start}..{end} are not inside the buffer of {len(data)} bytes"
            )
    return [Reader(data[start:end]) for start, end in pairwise(bounds)]


@contextmanager
def naming(i: int, count: int) -> Iterator[None]:
    """Say which block is bad where there are several."""
    try:
        yield
    except FormatError as error:
        if count == 1:
            raise
        raise FormatError(f"block {i}: {error}") from None


def max_bytes(table: BlockTable) -> int:
    """Room that ``encode_blocks`` needs."""
    return sum(block.max_bytes() for block in read_table(table))


def encode_blocks(table: BlockTable, x: Array, out: Array, offsets: Array, threads: int) -> None:
    """Encode one block after the other."""
    blocks = read_table(table)
    counts = [block.rows * block.cols for block in blocks]
    check(len(x) == sum(counts), "x does not have as many values as the blocks")
    check(len(out) >= sum(b.max_bytes() for b in blocks), "out is smaller than max_bytes of the blocks")
    check(len(offsets) == len(blocks) + 1, "offsets must have one more entry than there are blocks")
    encoded = [block.encode(part) for block, part in zip(blocks, parts(x, counts), strict=True)]
    write_blocks(encoded, out, offsets)


def decode_blocks(table: BlockTable, block: Array, offsets: Array, out: Array, threads: int) -> None:
    """Decode one block after the other."""
    blocks = read_table(table)
    counts = [b.rows * b.cols for b in blocks]
    check(len(out) == sum(counts), "out does not have as many values as the blocks")
    check(len(offsets) == len(blocks) + 1, "offsets must have one more entry than there are blocks")
    for i, (reader, part) in enumerate(zip(readers(block, offsets), parts(out, counts), strict=True)):
        with naming(i, len(blocks)):
            part.copy_(decode_block(blocks[i].kind, reader, blocks[i].rows, blocks[i].cols))


def encode_ids(counts: Array, ids: Array, out: Array, offsets: Array, threads: int) -> None:
    """Encode one list after the other."""
    lengths = read_counts(counts)
    check(len(ids) == sum(lengths), "ids does not have as many values as counts says")
    room = sum(map(id_list.ids_max_bytes, lengths))
    check(len(out) >= room, "out is smaller than max_bytes of the lists")
    check(len(offsets) == len(lengths) + 1, "offsets must have one more entry than there are lists")
    write_blocks([id_list.encode_ids(part) for part in parts(ids, lengths)], out, offsets)


def decode_ids(counts: Array, block: Array, offsets: Array, out: Array, threads: int) -> None:
    """Decode one list after the other."""
    lengths = read_counts(counts)
    check(len(out) == sum(lengths), "out does not have as many values as counts says")
    check(len(offsets) == len(lengths) + 1, "offsets must have one more entry than there are lists")
    for i, (reader, part) in enumerate(zip(readers(block, offsets), parts(out, lengths), strict=True)):
        with naming(i, len(lengths)):
            part.copy_(id_list.decode_ids(reader, lengths[i]))


def count_ids(block: Array) -> int:
    """How many ids a block says it has."""
    return id_list.count_ids(reader_of(block))
