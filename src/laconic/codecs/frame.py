"""Frame: a block that explains itself, for files, foreign peers and the aggregator.

Layout, little-endian (normative text: ``docs/formats/frame.md``)::

    offset   size   field
    0        4      magic      "LCNC"
    4        1      version    1
    5        1      wire id    format of the block
    6        1      dtype      of the decoded values: 0 float32, 1 int64
    7        1      d          number of dimensions, 0..8
    8        8d     shape      uint64[d]
    8+8d     8      length     uint64, bytes of the block
    16+8d    4      checksum   CRC-32 of everything before it and of the block
    20+8d    length block
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor

from laconic.codecs.bounded_rows import Bounded, BoundedRows
from laconic.codecs.cast import Cast
from laconic.codecs.codec import Codec
from laconic.codecs.id_list import IdList
from laconic.codecs.lossless import Lossless
from laconic.codecs.sc24 import Huffman, Hybrid, VectorLz
from laconic.errors import ConfigError, FormatError
from laconic.kernels.blocks import MAX_CALL_VALUES, MAX_VALUES

__all__ = ["Frame"]

_PREFIX = struct.Struct("<4sBBBB")
_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_DTYPES = (torch.float32, torch.int64)
_MAX_DIMENSIONS = 8

_DECODERS: dict[int, Codec] = {
    codec.wire_id: codec
    for codec in (
        BoundedRows(),
        Bounded(),
        VectorLz(),
        Huffman(),
        Hybrid(),
        IdList(),
        Lossless(),
        Cast("fp16"),
        Cast("bf16"),
        Cast("int8"),
        Cast("int4"),
        Cast("fp32"),
    )
}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Frame:
    """A block with all that a stranger needs to decode it.

    >>> data = laconic.Frame.of(laconic.Cast("fp16"), torch.tensor([[1.0, 2.0]])).to_bytes()
    >>> laconic.Frame.parse(data).decode()
    tensor([[1., 2.]])
    """

    MAGIC: ClassVar[bytes] = b"LCNC"
    VERSION: ClassVar[int] = 1

    wire_id: int
    """Which codec wrote the block."""

    dtype: torch.dtype
    """Type of the decoded values."""

    shape: tuple[int, ...]
    """Shape of the decoded tensor."""

    block: Tensor
    """The bytes that the codec wrote."""

    @classmethod
    def of(cls, codec: Codec, x: Tensor) -> Frame:
        """Encode ``x`` with ``codec`` and frame the block."""
        if x.dim() > _MAX_DIMENSIONS:
            raise ConfigError(
                f"frame: expected at most {_MAX_DIMENSIONS} dimensions, got {x.dim()}; reshape first"
            )
        if codec.wire_id not in _DECODERS:
            raise ConfigError(
                f"frame: a block of {type(codec).__name__} does not say all that decoding it needs; use another codec"
            )
        dtype = torch.int64 if codec.wire_id == IdList.wire_id else torch.float32
        return cls(wire_id=codec.wire_id, dtype=dtype, shape=tuple(x.shape), block=codec.encode(x))

    @property
    def codec(self) -> Codec:
        """A codec that decodes the block; its settings are not those of the encoder."""
        return _DECODERS[self.wire_id]

    def to_bytes(self) -> bytes:
        """Return the whole frame."""
        body = self.block.numpy().tobytes()
        header = _PREFIX.pack(
            self.MAGIC, self.VERSION, self.wire_id, _DTYPES.index(self.dtype), len(self.shape)
        )
        header += struct.pack(f"<{len(self.shape)}Q", *self.shape) + _LENGTH.pack(len(body))
        return header + _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(header))) + body

    @classmethod
    def parse(cls, data: bytes, max_values: int = 2**31) -> Frame:
        """Read a frame; ``FormatError`` names the field that is wrong.

        ``max_values`` limits what a stranger can make us allocate.
        """
        fields = _Fields(data)
        magic, version, wire_id, dtype, dimensions = fields.take(_PREFIX, "frame header")
        if magic != cls.MAGIC:
            raise FormatError(f"magic: expected {cls.MAGIC!r}, got {magic!r}; this is not a Laconic frame")
        if version != cls.VERSION:
            raise FormatError(
                f"version: expected {cls.VERSION}, got {version}; a newer Laconic wrote this frame"
            )
        if wire_id not in _DECODERS:
            raise FormatError(
                f"wire id: no codec has {wire_id} (known: {', '.join(map(str, sorted(_DECODERS)))})"
            )
        expected = 1 if wire_id == IdList.wire_id else 0
        if dtype != expected:
            raise FormatError(f"dtype: expected {expected} for wire id {wire_id}, got {dtype}")
        if dimensions > _MAX_DIMENSIONS:
            raise FormatError(f"dimensions: expected at most {_MAX_DIMENSIONS}, got {dimensions}")
        shape = fields.take(struct.Struct(f"<{dimensions}Q"), "shape")
        _check_shape(shape, max_values, MAX_CALL_VALUES if wire_id == IdList.wire_id else MAX_VALUES)
        (length,) = fields.take(_LENGTH, "length")
        covered = data[: fields.at]
        (checksum,) = fields.take(_CHECKSUM, "checksum")
        body = data[fields.at :]
        if length != len(body):
            raise FormatError(f"length: expected {length} bytes of block, got {len(body)}")
        actual = zlib.crc32(body, zlib.crc32(covered))
        if checksum != actual:
            raise FormatError(
                f"checksum: expected {checksum:#010x}, got {actual:#010x}; the frame is damaged"
            )
        block = (
            torch.frombuffer(bytearray(body), dtype=torch.uint8)
            if body
            else torch.empty(0, dtype=torch.uint8)
        )
        return cls(wire_id=wire_id, dtype=_DTYPES[dtype], shape=tuple(shape), block=block)

    def decode(self) -> Tensor:
        """Return the tensor."""
        return self.codec.decode(self.block, self.shape, self.dtype)


def _check_shape(shape: tuple[int, ...], max_values: int, most: int) -> None:
    """Refuse what is too large, also where a size of 0 hides it: nothing can have such a shape."""
    values = prod(size for size in shape if size)
    if values > max_values:
        raise FormatError(
            f"shape: {shape} is more than {max_values} values; raise max_values if that is right"
        )
    if values > most:
        raise FormatError(f"shape: {shape} is more than {most} values, which no block has")


class _Fields:
    """Takes fixed fields from the front of a frame."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, layout: struct.Struct, name: str) -> tuple[Any, ...]:
        if len(self.data) - self.at < layout.size:
            left = len(self.data) - self.at
            raise FormatError(f"{name}: needs {layout.size} bytes, the frame has {left} left")
        values = layout.unpack_from(self.data, self.at)
        self.at += layout.size
        return values
