"""What every quantized block shares: step and base, patches, and the exits that need no codes.

A block starts with its form, one byte; an empty block has no bytes at all::

    0 constant      float32 that all values have
    1 stored        float32[n]
    2 packed        header, codes, patches
    3 entropy       the same; they differ in the kind of their code sequence
    4 deduplicated  header, references, codes of the distinct rows, patches
    5 vector LZ     header, rows, patches
    6 Huffman       header, sequence, patches

    header          float32 step, signed varint base
    patches         varint, their number
                    each: varint values skipped since the last one, 4 bytes of the value

Shapes: ``N`` values of the block.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import isfinite

import torch
from torch import Tensor

from laconic.kernels.reference.byte_io import Reader, Writer, expect, from_bytes, to_bytes
from laconic.kernels.reference.quantize.grid import BoundSpec, choose_grid
from laconic.kernels.reference.quantize.quantize import Grid, dequantize, quantize


class Form(IntEnum):
    """First byte of a block."""

    CONSTANT = 0
    STORED = 1
    PACKED = 2
    ENTROPY = 3
    DEDUPLICATED = 4
    VECTOR_LZ = 5
    HUFFMAN = 6


def max_block_bytes(n: int) -> int:
    """Size of a stored block: what takes more is stored."""
    return 4 * n + 1 if n else 0


@dataclass(frozen=True, slots=True)
class Quantized:
    """Codes of a block, and the values that travel exactly."""

    grid: Grid
    codes_N: Tensor
    patches: list[tuple[int, bytes]]
    """Index and bytes of each value that no code represents."""


def quantize_block(x_N: Tensor, spec: BoundSpec) -> bytes | Quantized:
    """Codes of a block, or the whole block if it needs none."""
    n = len(x_N)
    if not n:
        return b""
    bits = x_N.view(torch.int32)
    if bool((bits == bits[0]).all()):
        return constant_block(x_N[:1])
    grid = choose_grid(x_N, spec)
    if grid is None:
        return stored_block(x_N)
    codes, failed = quantize(x_N, grid)
    if len(failed) * 5 >= n * 4:
        return stored_block(x_N)
    if not len(failed) and not grid.low_bits and bool((codes == codes[0]).all()):
        return constant_block(dequantize(codes[:1], grid.step, grid.base))
    exact = to_bytes(x_N[failed])
    patches = [(index, exact[4 * k : 4 * k + 4]) for k, index in enumerate(failed.tolist())]
    return Quantized(grid, codes, patches)


def constant_block(value: Tensor) -> bytes:
    """Make the block of a tensor whose values are all ``value``, float32[1]."""
    return bytes([Form.CONSTANT]) + to_bytes(value)


def stored_block(x_N: Tensor) -> bytes:
    """Make the block that holds the values themselves."""
    return bytes([Form.STORED]) + to_bytes(x_N)


def write_header(grid: Grid, out: Writer) -> None:
    """Write what dequantizing needs."""
    out.float32(grid.step)
    out.signed_varint(grid.base)


def read_header(reader: Reader) -> tuple[float, int]:
    """Read step and base."""
    step = reader.float32("step")
    expect(isfinite(step) and step > 0, "step: not a positive finite number")
    base = reader.signed_varint("base code")
    expect(-(1 << 22) <= base <= 1 << 22, "base code: beyond 2^22")
    return step, base


def write_patches(patches: list[tuple[int, bytes]], out: Writer) -> None:
    """Write the values that no code represents."""
    out.varint(len(patches))
    following = 0
    for index, exact in patches:
        out.varint(index - following)
        out.bytes(exact)
        following = index + 1


def apply_patches(reader: Reader, out_N: Tensor) -> None:
    """Read patches and put their values in place."""
    reader.part = ""
    n = len(out_N)
    count = reader.varint("patches")
    expect(count <= n and count <= reader.left // 5, "patches: more than there are values or bytes")
    following = 0
    for _ in range(count):
        index = following + reader.varint("patch position")
        expect(index < n, "patch position: beyond the values")
        reader.note(f"value {index}")
        value = from_bytes(reader.take(4, "patch value"), torch.float32)
        reader.note(repr(float(value)))
        out_N[index : index + 1] = value
        following = index + 1


def read_form(reader: Reader) -> int:
    """Read the first byte of a block; may be no form at all."""
    form = reader.byte("form")
    if form <= max(Form):
        reader.note(f"{Form(form).name.lower().replace('_', ' ')} ({form})")
    return form


def read_plain_form(form: int, reader: Reader, n: int) -> Tensor | None:
    """Values of a constant or stored block, None if it is neither."""
    if form == Form.CONSTANT:
        value = from_bytes(reader.take(4, "value"), torch.float32)
        reader.note(repr(float(value)))
        return value.repeat(n)
    if form == Form.STORED:
        return from_bytes(reader.take(4 * n, "stored values"), torch.float32)
    return None
