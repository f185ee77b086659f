"""IdList: int64 ids without loss, as differences or as offsets.

Normative text: ``docs/formats/id_list.md``::

    count       varint
    form        0 stored        int64[count]
                1 ascending     differences to the id before, never negative
                2 differences   the same, sign in the lowest bit
                3 offsets       differences to the smallest id
    reference   signed varint: the first id, or the smallest one
    numbers     one for every id, but not for the first one where that is the reference

Differences wrap at 2^64.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import torch
from torch import Tensor

from laconic.errors import FormatError
from laconic.kernels.reference.byte_io import Reader, Writer, expect, from_bytes, to_bytes
from laconic.kernels.reference.sequence.coding import Coding
from laconic.kernels.reference.sequence.numbers import choose_for_numbers, read_numbers, write_numbers

_64_BITS = 0xFFFFFFFFFFFFFFFF


class Form(IntEnum):
    """How ids become unsigned numbers."""

    STORED = 0
    ASCENDING = 1
    DIFFERENCES = 2
    OFFSETS = 3


def ids_max_bytes(n: int) -> int:
    """Room that a list of ``n`` ids needs."""
    return 8 * n + 16


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A form, and what it makes of the ids."""

    form: Form
    reference: int
    numbers: list[int]
    coding: Coding


def _consider(form: Form, ids: list[int]) -> _Candidate:
    if form == Form.OFFSETS:
        reference = min(ids)
        numbers = [i - reference for i in ids]
    else:
        reference = ids[0]
        numbers = [later - earlier & _64_BITS for earlier, later in pairwise(ids)]
    if form == Form.DIFFERENCES:
        numbers = [(d << 1 & _64_BITS) ^ (_64_BITS if d >> 63 else 0) for d in numbers]
    return _Candidate(form, reference, numbers, choose_for_numbers(numbers))


def encode_ids(ids_N: Tensor) -> bytes:
    """Encode a list of ids."""
    n = len(ids_N)
    ids: list[int] = ids_N.tolist()
    if n:
        ascending = all(earlier <= later for earlier, later in pairwise(ids))
        forms = (Form.ASCENDING,) if ascending else (Form.DIFFERENCES, Form.OFFSETS)
        best = min((_consider(form, ids) for form in forms), key=lambda candidate: candidate.coding.bits)
        block = _write_block(best, n)
        if len(block) <= 8 * n:
            return block
    out = Writer()
    out.varint(n)
    out.byte(Form.STORED)
    out.bytes(to_bytes(ids_N))
    return bytes(out.data)


def _write_block(c: _Candidate, n: int) -> bytes:
    out = Writer()
    out.varint(n)
    out.byte(c.form)
    out.signed_varint(c.reference)
    write_numbers(c.coding, c.numbers, out)
    return bytes(out.data)


def count_ids(reader: Reader) -> int:
    """How many ids the block says it has."""
    return reader.varint("count")


def decode_ids(reader: Reader, n: int) -> Tensor:
    """Decode a block of exactly ``n`` ids."""
    count = count_ids(reader)
    if count != n:
        raise FormatError(f"count: the block has {count} ids, expected {n}")
    form = reader.byte("form")
    expect(form <= Form.OFFSETS, "form: outside 0..3")
    reader.note(f"{Form(form).name.lower()} ({form})")
    if form == Form.STORED:
        ids = from_bytes(reader.take(8 * n, "stored ids"), torch.int64)
        expect(reader.left == 0, "block: bytes after its end")
        return ids
    expect(n > 0, "form: an empty list is stored")
    reference = reader.signed_varint("reference")
    return _decode_numbers(Form(form), reference, reader, n)


def _decode_numbers(form: Form, reference: int, reader: Reader, n: int) -> Tensor:
    numbers = read_numbers(reader, n if form == Form.OFFSETS else n - 1)
    expect(reader.left == 0, "block: bytes after its end")
    if form == Form.OFFSETS:
        return _int64([reference + number for number in numbers])
    ids = [reference]
    for number in numbers:
        ids.append(ids[-1] + (number if form == Form.ASCENDING else number >> 1 ^ -(number & 1)))
    return _int64(ids)


def _int64(ids: list[int]) -> Tensor:
    """Ids modulo 2^64 as int64."""
    return torch.tensor([(i + (1 << 63) & _64_BITS) - (1 << 63) for i in ids], dtype=torch.int64)
