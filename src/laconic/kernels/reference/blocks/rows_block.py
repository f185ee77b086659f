"""BoundedRows: a float32 matrix, every value within its bound, equal rows sent once.

Normative text: ``docs/formats/bounded_rows.md``. Where rows repeat, the block holds the distinct
rows' codes, numbered as in ``deduplicate``, and before them the references::

    repeated rows   varint, distinct rows that occur more than once
    single rows     varint, distinct rows that occur once
    flags           if there are single rows: sequence of one bit per row, 1 for single
    references      sequence: number of each row that is not single

Shapes: ``R`` rows, ``C`` columns, ``U`` distinct rows, ``N`` = R C.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.kernels.reference.blocks.code_counts import CodeCounts, count_codes
from laconic.kernels.reference.blocks.code_section import CodeReader, write_narrow_codes, write_wide_codes
from laconic.kernels.reference.blocks.deduplicate import Distinct, find_distinct
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
from laconic.kernels.reference.byte_io import Reader, Writer, expect
from laconic.kernels.reference.quantize.grid import BoundSpec
from laconic.kernels.reference.quantize.quantize import dequantize
from laconic.kernels.reference.sequence.coding import Coding, Mode, choose_for_values
from laconic.kernels.reference.sequence.sequence import SequenceReader, write_values

_MAX_REPEATED = 1 << 23  # what 8 + 15 bits can number


def encode_rows(x_N: Tensor, rows: int, cols: int, spec: BoundSpec) -> bytes:
    """Encode a matrix, given row by row."""
    quantized = quantize_block(x_N, spec)
    if isinstance(quantized, bytes):
        return quantized
    block = _write_block(quantized, rows, cols)
    return block if len(block) <= max_block_bytes(len(x_N)) else stored_block(x_N)


def _write_block(q: Quantized, rows: int, cols: int) -> bytes:
    out = Writer()
    write_header(q.grid, out)
    codes_RC, low_bits = q.codes_N.reshape(rows, cols), q.grid.low_bits
    counts = count_codes(q.codes_N, low_bits)
    references = _choose_references(codes_RC, counts)
    if references:
        references.write(out)
        codes_RC, counts = codes_RC[references.distinct.first_U], references.counts
    codes = codes_RC.flatten()
    mode = write_wide_codes(codes, low_bits, out) if low_bits else write_narrow_codes(codes, counts, out)
    write_patches(q.patches, out)
    form = Form.DEDUPLICATED if references else Form.PACKED if mode == Mode.PACKED else Form.ENTROPY
    return bytes([form]) + bytes(out.data)


@dataclass(frozen=True, slots=True)
class _References:
    """How the rows of a block are told apart."""

    distinct: Distinct
    counts: CodeCounts
    """Counts of the distinct rows' codes."""
    flags: Coding | None
    indices: Coding

    def write(self, out: Writer) -> None:
        out.varint(self.distinct.repeated)
        out.varint(self.distinct.single)
        if self.flags:
            write_values(self.flags, self.distinct.flags_R, out)
        write_values(self.indices, self.distinct.indices, out)


def _choose_references(codes_RC: Tensor, all_codes: CodeCounts) -> _References | None:
    """Choose how to refer to rows, if to name each row's double costs less than to repeat it.

    Two estimates must agree, because each can be wrong. The first takes a repeated row to cost as
    much as a distinct one, which is too much where repeated rows are emptier. The second compares
    the entropies of all codes and of the distinct rows' codes. In large blocks it sees samples
    only, which are too coarse where little repeats.
    """
    rows, cols = codes_RC.shape
    d = find_distinct(codes_RC)
    distinct = len(d.first_U)
    if distinct == rows or d.repeated > _MAX_REPEATED:
        return None
    counts = count_codes(codes_RC[d.first_U].flatten(), all_codes.low_bits)
    indices = choose_for_values(d.indices, d.repeated)
    flags = choose_for_values(d.flags_R, 2) if d.single else None
    cost = indices.bits + (flags.bits if flags else 0)
    saved = (rows - distinct) * cols * counts.mean_q16 >> 16
    worthwhile = saved > cost and counts.estimated_bits + cost < all_codes.estimated_bits
    return _References(d, counts, flags, indices) if worthwhile else None


def decode_rows(reader: Reader, rows: int, cols: int) -> Tensor:
    """Decode a block of this shape, row by row; ``FormatError`` unless it is exactly one."""
    n = rows * cols
    if not n:
        expect(reader.left == 0, "block: bytes for an empty shape")
        return torch.empty(0)
    form = read_form(reader)
    expect(form <= Form.DEDUPLICATED, "form: outside 0..4")
    out = read_plain_form(form, reader, n)
    if out is None:
        out = _read_codes(Form(form), reader, rows, cols)
        apply_patches(reader, out)
    expect(reader.left == 0, "block: bytes after its end")
    return out


def _read_codes(form: Form, reader: Reader, rows: int, cols: int) -> Tensor:
    step, base = read_header(reader)
    shared = form == Form.DEDUPLICATED
    distinct, numbers_R = _read_references(reader, rows) if shared else (rows, torch.arange(rows))
    reader.part = "codes" if shared else ""
    codes = CodeReader(reader, distinct * cols)
    expect(shared or (form == Form.PACKED) == codes.packed, "form: it does not match the code sequence")
    return dequantize(codes.codes().reshape(-1, cols)[numbers_R].flatten(), step, base)


def _read_references(reader: Reader, rows: int) -> tuple[int, Tensor]:
    """How many rows are distinct, and the number of every row's distinct row."""
    repeated, single = reader.varint("repeated rows"), reader.varint("single rows")
    expect(repeated >= 1 and repeated + single < rows, "distinct rows: not fewer than the rows")
    flags_R = torch.zeros(rows, dtype=torch.int64)
    if single:
        reader.part = "single-row flags"
        flags_R = SequenceReader(reader, rows).values(2, "single-row flags")
        expect(
            int(flags_R.sum()) == single, "single-row flags: their number is not the number of single rows"
        )
    reader.part = "row references"
    numbers_R = repeated + flags_R.cumsum(0) - 1
    numbers_R[flags_R == 0] = SequenceReader(reader, rows - single).values(repeated, "row references")
    return repeated + single, numbers_R
