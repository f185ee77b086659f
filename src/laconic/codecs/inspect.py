"""Inspect: what every byte of a frame says.

The block's fields come from the reference decoder's own trace, so the explanation cannot drift
from the format.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from laconic import kernels
from laconic.codecs.batch import BlockCodec
from laconic.codecs.frame import Frame
from laconic.errors import FormatError
from laconic.kernels.reference.blocks.batch import Field, describe_block, describe_ids

__all__ = ["Field", "explain"]


def explain(data: bytes) -> list[Field]:
    """Fields of a frame and of the block in it, in the order of their bytes, without gaps."""
    frame = Frame.parse(data)
    header = _header_fields(frame, data)
    start = header[-1].offset + header[-1].size
    return header + [replace(field, offset=field.offset + start) for field in _block_fields(frame)]


def _header_fields(frame: Frame, data: bytes) -> list[Field]:
    dimensions = len(frame.shape)
    after = 8 + 8 * dimensions
    ratio = frame.dtype.itemsize * prod(frame.shape) / max(1, frame.block.numel())
    plain = str(frame.dtype).removeprefix("torch.")
    codec = type(frame.codec).__name__
    return [
        Field(0, 4, "magic", frame.MAGIC.decode()),
        Field(4, 1, "version", str(frame.VERSION)),
        Field(5, 1, "wire id", f"{codec} ({frame.wire_id})"),
        Field(6, 1, "dtype", plain),
        Field(7, 1, "dimensions", str(dimensions)),
        *(Field(8 + 8 * i, 8, f"shape[{i}]", f"{size:,}") for i, size in enumerate(frame.shape)),
        Field(after, 8, "length", f"{frame.block.numel():,} bytes, {ratio:.2f} times smaller than {plain}"),
        Field(after + 8, 4, "checksum", f"{int.from_bytes(data[after + 8 : after + 12], 'little'):#010x}"),
    ]


def _block_fields(frame: Frame) -> list[Field]:
    codec = frame.codec
    if isinstance(codec, BlockCodec):
        return describe_block(codec.spec().kind, frame.block, *codec.matrix(frame.shape))
    count = kernels.active().count_ids(frame.block.numpy())
    if count != prod(frame.shape):
        raise FormatError(f"count: the block has {count} ids, expected {prod(frame.shape)}")
    return describe_ids(frame.block)
