"""Numbers: unsigned 64-bit integers that are mostly small, as classes by size and raw bits.

A number below 16 is its own class. A larger one of ``b`` bits has class ``16 + 4 (b - 5)`` plus its
two bits below the first, and ``b - 3`` raw bits; 256 classes reach 2^64. Normative text:
``docs/formats/sequence.md``::

    classes     sequence, a symbol per number
    raw bits    of every number in turn, least significant first, padded to a byte
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from laconic.kernels.reference.byte_io import Reader, Writer, expect
from laconic.kernels.reference.sequence.coding import Coding, Mode, Statistics, choose_coding, count_symbols
from laconic.kernels.reference.sequence.huffman import entropy_q16
from laconic.kernels.reference.sequence.sequence import SequenceReader, write_packed, write_symbols


def _classify(number: int) -> tuple[int, int]:
    """Class, and how many raw bits come with it."""
    if number < 16:
        return number, 0
    raw = number.bit_length() - 3
    return 8 + 4 * raw + (number >> raw & 3), raw


def choose_for_numbers(numbers: list[int]) -> Coding:
    """Cheapest code for the classes of the numbers; its cost includes the raw bits."""
    classes = _classes(numbers)
    m, histogram = len(numbers), count_symbols(classes)
    mean_q8 = (int(classes.sum()) << 8) // m if m else 0
    coding = choose_coding(Statistics(histogram, entropy_q16(histogram), m, mean_q8), 0, 0, centered=False)
    return replace(coding, bits=coding.bits + sum(_classify(number)[1] for number in numbers))


def write_numbers(coding: Coding, numbers: list[int], out: Writer) -> None:
    """Write classes and raw bits."""
    if coding.mode == Mode.PACKED:
        write_packed(_classes(numbers), coding.width, out)
    else:
        write_symbols(coding, _classes(numbers).to(torch.uint8), out)
    out.bytes(_pack_raw(numbers))


def _classes(numbers: list[int]) -> Tensor:
    return torch.tensor([_classify(number)[0] for number in numbers], dtype=torch.int64)


def read_numbers(reader: Reader, n: int) -> list[int]:
    """Read ``n`` numbers."""
    sequence = SequenceReader(reader, n)
    expect(not sequence.log_group and not sequence.low_bits, "sequence kind: classes come one to a symbol")
    classes = sequence.values(256, "class").tolist()
    bits = sum(_raw_bits(symbol) for symbol in classes)
    return _unpack_raw(classes, reader.take((bits + 7) // 8, "raw bits"))


def _raw_bits(symbol: int) -> int:
    return 0 if symbol < 16 else (symbol - 8) // 4


def _pack_raw(numbers: list[int]) -> bytes:
    backwards = [format(number, "b")[3:] for number in reversed(numbers) if number >= 16]
    bits = "".join(backwards)
    return int(bits or "0", 2).to_bytes((len(bits) + 7) // 8, "little")


def _unpack_raw(classes: list[int], data: bytes) -> list[int]:
    numbers, bit = [], 0
    for symbol in classes:
        width = _raw_bits(symbol)
        if not width:
            numbers.append(symbol)
            continue
        around = int.from_bytes(data[bit >> 3 : bit + width + 7 >> 3], "little")
        raw = around >> (bit & 7) & (1 << width) - 1
        numbers.append((4 | symbol & 3) << width | raw)
        bit += width
    return numbers
