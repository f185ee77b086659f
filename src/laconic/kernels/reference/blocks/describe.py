"""What every byte of a block says: the decoder's own trace, in the order of the bytes."""

from __future__ import annotations

from torch import Tensor

from laconic.kernels.blocks import Kind
from laconic.kernels.reference.blocks.batch import decode_block
from laconic.kernels.reference.byte_io import Field, Reader, to_bytes
from laconic.kernels.reference.sequence.id_list import count_ids, decode_ids

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
    decode_ids(Reader(data, trace), count_ids(Reader(data)))
    return sorted(trace, key=lambda field: field.offset)
