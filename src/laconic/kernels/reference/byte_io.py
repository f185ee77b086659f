"""Bytes of a block, read and written one field at a time, never past the end.

Everything is little-endian. A varint is base 128, lowest seven bits first, at most ten bytes, in
its shortest form. A signed varint is the varint of ``2 v`` or ``-2 v - 1``: its lowest bit is the
sign.

A ``Reader`` that is given a trace notes every field it reads there: this is how a block explains
itself byte by byte.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from laconic.errors import FormatError


@dataclass(frozen=True, slots=True)
class Field:
    """Some bytes of a block and what they say."""

    offset: int
    size: int
    name: str
    value: str


def expect(truth: bool, message: str) -> None:
    """Refuse the block unless ``truth``."""
    if not truth:
        raise FormatError(message)


def to_bytes(x: Tensor) -> bytes:
    """Memory of a tensor of any type, NaN payloads included."""
    return x.contiguous().numpy().tobytes()


def from_bytes(data: bytes, dtype: torch.dtype) -> Tensor:
    """Undo ``to_bytes``, as a tensor of one dimension."""
    return torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)


class Reader:
    """Fields of a block, from its first byte to its last."""

    def __init__(self, data: bytes, trace: list[Field] | None = None, start: int = 0, part: str = "") -> None:
        self._data = data
        self._at = 0
        self._start = start
        self._trace = trace
        self.part = part
        """What the next fields belong to; stands before their names in the trace."""

    @property
    def left(self) -> int:
        """Bytes that were not read yet."""
        return len(self._data) - self._at

    def take(self, size: int, field: str) -> bytes:
        """Read ``size`` bytes as they are."""
        data = self._advance(size, field)
        self._record(size, field, f"{size} bytes")
        return data

    def byte(self, field: str) -> int:
        """Read an unsigned byte."""
        value = self._advance(1, field)[0]
        self._record(1, field, str(value))
        return value

    def float32(self, field: str) -> float:
        """Read a float32; every one but a NaN's payload survives in a Python float."""
        value: float = struct.unpack("<f", self._advance(4, field))[0]
        self._record(4, field, repr(value))
        return value

    def varint(self, field: str) -> int:
        """Read a number below 2^64."""
        start = self._at
        value = self._varint(field)
        self._record(self._at - start, field, str(value))
        return value

    def signed_varint(self, field: str) -> int:
        """Read a number of 64 bits with sign."""
        start = self._at
        z = self._varint(field)
        value = z >> 1 ^ -(z & 1)
        self._record(self._at - start, field, str(value))
        return value

    def inner(self, size: int, field: str) -> Reader:
        """Leave the next ``size`` bytes to a reader of their own."""
        start = self._start + self._at
        return Reader(self._advance(size, field), self._trace, start, self.part)

    def note(self, text: str) -> None:
        """Say what the last field means."""
        if self._trace:
            self._trace[-1] = replace(self._trace[-1], value=text)

    def _advance(self, size: int, field: str) -> bytes:
        if size > self.left:
            raise FormatError(f"{field}: needs {size} bytes, the block has {self.left} left")
        self._at += size
        return self._data[self._at - size : self._at]

    def _varint(self, field: str) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._advance(1, field)[0]
            if shift == 63 and byte & 127 > 1:
                break
            value |= (byte & 127) << shift
            if byte < 128:
                if byte == 0 and shift:
                    break
                return value
        raise FormatError(f"{field}: not a 64-bit varint in its shortest form")

    def _record(self, size: int, field: str, value: str) -> None:
        if self._trace is not None and size:
            name = f"{self.part}: {field}" if self.part else field
            self._trace.append(Field(self._start + self._at - size, size, name, value))


class Writer:
    """A block in the making."""

    def __init__(self) -> None:
        self.data = bytearray()

    def bytes(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.data += data

    def byte(self, value: int) -> None:
        """Write an unsigned byte."""
        self.data.append(value)

    def float32(self, value: float) -> None:
        """Write a number that is a float32."""
        self.data += struct.pack("<f", value)

    def varint(self, value: int) -> None:
        """Write a number below 2^64."""
        while value > 127:
            self.data.append(value & 127 | 128)
            value >>= 7
        self.data.append(value)

    def signed_varint(self, value: int) -> None:
        """Write a number of 64 bits with sign."""
        self.varint(2 * value if value >= 0 else -2 * value - 1)
