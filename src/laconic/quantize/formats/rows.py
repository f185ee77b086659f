"""Rows of embedding tables in few bits, each with its own scale and bias behind its codes.

Byte for byte the fused row-wise layouts of FBGEMM (normative text: ``docs/formats/artifact.md``)::

    fp32    float32[D]
    fp16    float16[D], nearest
    int8    uint8[D], float32 scale, float32 bias
    int4    two codes a byte, the first one low; float16 scale, float16 bias
    int2    four codes a byte, the first one lowest; float16 scale, float16 bias

A code ``c`` stands for ``c * scale + bias``, rounded twice. Shape legend: ``R`` rows, ``D`` numbers
of a row, ``W`` bytes of a quantized row.
"""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor

from laconic import kernels
from laconic.errors import ConfigError, FormatError

__all__ = ["Ranges", "RowFormat", "dequantize_rows", "quantize_rows"]

_CHUNK_VALUES = 1 << 20  # numbers restored at a time, so that they stay in the cache
_LARGEST_HALF = 65504.0


class Ranges(StrEnum):
    """How a row's range is chosen: all of it, or less for a smaller error (``row_ranges``)."""

    MINMAX = "minmax"
    GREEDY = "greedy"
    L2 = "l2"

    @property
    def code(self) -> int:
        """Number by which kernels know this value."""
        return list(Ranges).index(self)


class RowFormat(StrEnum):
    """Format in which the rows of a table are stored."""

    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"
    INT4 = "int4"
    INT2 = "int2"

    @property
    def bits(self) -> int:
        """Bits of one number."""
        return {"fp32": 32, "fp16": 16, "int8": 8, "int4": 4, "int2": 2}[self.value]

    @property
    def code(self) -> int:
        """Number by which kernels know this value."""
        return list(RowFormat).index(self)

    def row_bytes(self, dim: int) -> int:
        """W: bytes of a row of ``dim`` numbers."""
        parameters = {"int8": 8, "int4": 4, "int2": 4}.get(self.value, 0)
        return (dim * self.bits + 7) // 8 + parameters


def quantize_rows(
    rows_RD: Tensor, format: RowFormat, ranges: Ranges = Ranges.MINMAX, *, first: int = 0
) -> Tensor:
    """Quantize every row by itself: uint8, R x W. ``ranges`` has no meaning for fp32 and fp16.

    ``ConfigError`` for rows that the format cannot hold: they are not finite, or too large. The
    message has the row's number, where that of the first row is ``first``.
    """
    if rows_RD.dim() != 2 or not rows_RD.is_floating_point() or rows_RD.shape[1] < 1:
        raise ConfigError(
            f"quantize_rows: expected a matrix of floating-point rows, got {rows_RD.dtype} of shape {tuple(rows_RD.shape)}"
        )
    rows, dim = rows_RD.shape
    x_RD = rows_RD.detach().to(torch.float32).contiguous()
    out_RW = torch.empty(rows, format.row_bytes(dim), dtype=torch.uint8)
    if not rows:
        return out_RW
    if format is RowFormat.FP32:
        return x_RD.view(torch.uint8).clone()
    if format is RowFormat.FP16:
        _check_half(x_RD, first)
        return x_RD.to(torch.float16).view(torch.uint8)
    wrong = kernels.active().quantize_rows(
        x_RD.numpy(), format.code, ranges.code, out_RW.numpy(), torch.get_num_threads()
    )
    if wrong >= 0:
        raise _beyond(x_RD[wrong], format, first + wrong)
    return out_RW


def dequantize_rows(rows_RW: Tensor, format: RowFormat, dim: int) -> Tensor:
    """Undo ``quantize_rows``: float32, R x D. ``FormatError`` for rows of another size."""
    if rows_RW.dim() != 2 or rows_RW.dtype != torch.uint8 or rows_RW.shape[1] != format.row_bytes(dim):
        raise FormatError(
            f"dequantize_rows: expected uint8 rows of {format.row_bytes(dim)} bytes for {dim} numbers in {format}, "
            f"got {rows_RW.dtype} of shape {tuple(rows_RW.shape)}"
        )
    if format is RowFormat.FP32:
        return _packed(rows_RW).view(torch.float32)
    if format is RowFormat.FP16:
        return _packed(rows_RW).view(torch.float16).to(torch.float32)
    out_RD = torch.empty(len(rows_RW), dim)
    step = max(_CHUNK_VALUES // dim, 1)
    for begin in range(0, len(rows_RW), step):
        out_RD[begin : begin + step] = _dequantize(rows_RW[begin : begin + step], format, dim)
    return out_RD


def _check_half(x_RD: Tensor, first: int) -> None:
    for begin in range(0, len(x_RD), step := max(_CHUNK_VALUES // x_RD.shape[1], 1)):
        wrong_R = ~(x_RD[begin : begin + step].abs().amax(dim=1) <= _LARGEST_HALF)
        if wrong_R.any():
            row = begin + int(wrong_R.nonzero()[0])
            raise _beyond(x_RD[row], RowFormat.FP16, first + row)


def _beyond(row_D: Tensor, format: RowFormat, row: int) -> ConfigError:
    most = torch.finfo(torch.float32).max / 2 if format is RowFormat.INT8 else _LARGEST_HALF
    return ConfigError(
        f"quantize_rows: row {row} has a value of magnitude {float(row_D.abs().amax())!r}, {format} holds finite "
        f"ones up to {most:g}; choose fp32, or look for what went wrong in training"
    )


def _dequantize(rows_RW: Tensor, format: RowFormat, dim: int) -> Tensor:
    size = (dim * format.bits + 7) // 8
    kind = torch.float32 if format is RowFormat.INT8 else torch.float16
    pair_R2 = _packed(rows_RW[:, size:]).view(kind).to(torch.float32)
    each = 8 // format.bits
    shifts = torch.arange(each, dtype=torch.uint8) * format.bits
    codes = (rows_RW[:, :size, None] >> shifts) & (2**format.bits - 1)
    codes_RD = codes.flatten(1)[:, :dim].to(torch.float32)
    out_RD: Tensor = codes_RD * pair_R2[:, :1] + pair_R2[:, 1:]
    return out_RD


def _packed(bytes_RW: Tensor) -> Tensor:
    """Copy to aligned memory: a slice of a single row counts as contiguous wherever it is."""
    return bytes_RW.clone(memory_format=torch.contiguous_format)
