"""The SC'24 paper's encoders on our quantizer: an LZ whose symbol is a row, and Huffman over codes.

Normative text: ``docs/formats/sc24.md``. Vector LZ writes rows one after the other::

    literal row     0, then its codes, int8[cols]
    match           distance 1..255 in rows, then length 1..255 in rows

A match may overlap the rows it makes. Windows of 2048 rows are searched and read on their own.
Huffman writes one custom sequence over ``code + 128``. Hybrid writes whichever is better by the
paper's criterion; its blocks say themselves which it was. Wide codes are not these encoders'
business: such blocks are stored.

Shapes: ``R`` rows, ``C`` columns, ``N`` = R C.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from laconic.kernels.reference.blocks.quantized_block import (
    Form,
    Quantized,
    apply_patches,
    max_block_bytes,
    quantize_block,
    read_form,
    read_header,
    read_plain_form,
    stored_block,
    write_header,
    write_patches,
)
from laconic.kernels.reference.byte_io import Reader, Writer, expect, from_bytes, to_bytes
from laconic.kernels.reference.quantize.grid import BoundSpec
from laconic.kernels.reference.quantize.quantize import dequantize
from laconic.kernels.reference.sequence.coding import Coding, Mode, count_symbols, with_two_symbols
from laconic.kernels.reference.sequence.huffman import code_lengths
from laconic.kernels.reference.sequence.sequence import SequenceReader, write_symbols

_WINDOW_ROWS = 2048
_MAX_MATCH = 255


def encode_vector_lz(x_N: Tensor, rows: int, cols: int, spec: BoundSpec, window: int) -> bytes:
    """Encode with matches at most ``window`` rows back."""
    quantized = quantize_block(x_N, spec)
    if isinstance(quantized, bytes):
        return quantized
    body = Writer()
    _write_rows(quantized.codes_N.reshape(rows, cols), window, body)
    return _finish(x_N, quantized, Form.VECTOR_LZ, body)


def encode_huffman(x_N: Tensor, spec: BoundSpec) -> bytes:
    """Encode with one Huffman code made for the block."""
    quantized = quantize_block(x_N, spec)
    if isinstance(quantized, bytes):
        return quantized
    body = Writer()
    if not quantized.grid.low_bits:
        symbols = (quantized.codes_N + 128).to(torch.uint8)
        lengths = code_lengths(with_two_symbols(count_symbols(symbols)))
        write_symbols(Coding(mode=Mode.CUSTOM, lengths=lengths), symbols, body)
    return _finish(x_N, quantized, Form.HUFFMAN, body)


def better_of(lz: bytes, huffman: bytes, values: int, penalties: tuple[float, float]) -> bytes:
    """Return the block with the larger ``1 / (1 / ratio + penalty)``, vector LZ on a tie.

    Both blocks are of the same ``values`` values; ``penalties`` are those of vector LZ and Huffman.
    """
    if not values:
        return b""
    raw, (lz_penalty, huffman_penalty) = 4.0 * values, penalties
    return lz if len(lz) / raw + lz_penalty <= len(huffman) / raw + huffman_penalty else huffman


def _finish(x_N: Tensor, q: Quantized, form: Form, body: Writer) -> bytes:
    """Put a block together, or store the values where it is larger than they are."""
    out = Writer()
    out.byte(form)
    write_header(q.grid, out)
    out.bytes(bytes(body.data))
    write_patches(q.patches, out)
    fits = not q.grid.low_bits and len(out.data) <= max_block_bytes(len(x_N))
    return bytes(out.data) if fits else stored_block(x_N)


def _write_rows(codes_RC: Tensor, window: int, out: Writer) -> None:
    rows, cols = codes_RC.shape
    data = to_bytes(codes_RC.to(torch.int8))
    literals = [data[i * cols : (i + 1) * cols] for i in range(rows)]
    for first in range(0, rows, _WINDOW_ROWS):
        part = literals[first : first + _WINDOW_ROWS]
        i = 0
        while i < len(part):
            distance, length = _find_match(part, i, window)
            out.byte(distance)
            if length:
                out.byte(length)
            else:
                out.bytes(part[i])
            i += max(length, 1)


def _find_match(rows: Sequence[bytes], at: int, window: int) -> tuple[int, int]:
    """Return distance and length of the longest run from ``at`` that starts earlier, too.

    Among equally long ones it is the nearest.
    """
    best, longest = (0, 0), min(_MAX_MATCH, len(rows) - at)
    for distance in range(1, min(window, at) + 1):
        length = 0
        while length < longest and rows[at + length] == rows[at + length - distance]:
            length += 1
        if length > best[1]:
            best = (distance, length)
        if length == longest:
            break
    return best


def decode_sc24(reader: Reader, rows: int, cols: int) -> Tensor:
    """Decode a block of any of the three."""
    n = rows * cols
    if not n:
        expect(reader.left == 0, "block: bytes for an empty shape")
        return torch.empty(0)
    form = read_form(reader)
    out = read_plain_form(form, reader, n)
    if out is None:
        expect(form in (Form.VECTOR_LZ, Form.HUFFMAN), "form: not one of 0, 1, 5, 6")
        step, base = read_header(reader)
        codes = _read_rows(reader, rows, cols) if form == Form.VECTOR_LZ else _read_huffman(reader, n)
        out = dequantize(codes, step, base)
        apply_patches(reader, out)
    expect(reader.left == 0, "block: bytes after its end")
    return out


def _read_huffman(reader: Reader, n: int) -> Tensor:
    sequence = SequenceReader(reader, n)
    expect(
        sequence.mode == Mode.CUSTOM and not sequence.log_group and not sequence.low_bits,
        "sequence kind: not plain Huffman",
    )
    return sequence.all_values() - 128


def _read_rows(reader: Reader, rows: int, cols: int) -> Tensor:
    literals: list[bytes] = []
    while len(literals) < rows:
        i = len(literals)
        inside = i % _WINDOW_ROWS
        reader.part = f"row {i}"
        distance = reader.byte("distance")
        if distance == 0:
            reader.note("0: a literal row")
            literals.append(reader.take(cols, "literal row"))
            continue
        length = reader.byte("match length")
        expect(distance <= inside, "distance: before the first row of its window")
        expect(1 <= length <= min(rows - i, _WINDOW_ROWS - inside), "match length: beyond the window")
        for _ in range(length):
            literals.append(literals[-distance])
    return from_bytes(b"".join(literals), torch.int8).to(torch.int64)
