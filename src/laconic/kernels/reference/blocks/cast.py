"""Fixed-rate casts: four or two bytes a value, or 8- or 4-bit codes with a scale and bias a row.

Normative text: ``docs/formats/cast.md``. No header: the size follows from the shape::

    float32    4 n bytes, the values as they are
    float16    2 n bytes, round to nearest even; every NaN becomes the quiet one of its sign
    bfloat16   the same
    int8       row by row: uint8[cols], float32 scale, float32 bias
    int4       row by row: two codes a byte, the first one low; float16 scale, float16 bias

A code ``c`` decodes to ``c * scale + bias``, two roundings. A row that is not finite, or whose
extent is not, has NaN for scale and bias, and codes 0.

Shapes: ``N`` values, ``R`` rows, ``C`` columns. Integer tensors hold bit patterns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from laconic.errors import FormatError
from laconic.kernels.blocks import Kind
from laconic.kernels.reference.byte_io import Reader, from_bytes, to_bytes

_ROUNDER = 8388608.0  # 2^23: adding it rounds half to even
_MAGNITUDE = 0x7FFFFFFF


def cast_bytes(kind: Kind, rows: int, cols: int) -> int:
    """Size of a block of this shape."""
    if not cols:
        return 0
    row = {Kind.INT8: cols + 8, Kind.INT4: (cols + 1) // 2 + 4, Kind.FLOAT32: cols * 4}
    return rows * row.get(kind, cols * 2)


def encode_cast(kind: Kind, x_N: Tensor, rows: int, cols: int) -> bytes:
    """Cast a matrix, given row by row."""
    if not len(x_N):
        return b""
    if kind == Kind.FLOAT32:
        return to_bytes(x_N)
    if kind == Kind.FLOAT16:
        return to_bytes(half_from_float(x_N))
    if kind == Kind.BFLOAT16:
        return to_bytes(_bfloat_from_float(x_N))
    encode = _encode_int8 if kind == Kind.INT8 else _encode_int4
    return to_bytes(encode(x_N.reshape(rows, cols)))


def decode_cast(kind: Kind, reader: Reader, rows: int, cols: int) -> Tensor:
    """Undo ``encode_cast``, row by row; only a wrong size is refused."""
    size = cast_bytes(kind, rows, cols)
    if reader.left != size:
        raise FormatError(f"block: expected {size} bytes for this shape, got {reader.left}")
    if not rows * cols:
        return torch.empty(0)
    if kind == Kind.FLOAT32:
        return from_bytes(reader.take(size, "values"), torch.float32)
    if kind == Kind.FLOAT16:
        return float_from_half(from_bytes(reader.take(size, "values"), torch.int16))
    if kind == Kind.BFLOAT16:
        bits = from_bytes(reader.take(size, "values"), torch.int16).to(torch.int32) << 16
        return bits.view(torch.float32)
    return torch.cat([_read_row(kind, reader, i, cols) for i in range(rows)])


def _bits(x: Tensor) -> Tensor:
    """Bit patterns of float32 values as int64, sign bit last."""
    return x.view(torch.int32).to(torch.int64) & 0xFFFFFFFF


def half_from_float(x_N: Tensor) -> Tensor:
    """Bit patterns of the nearest float16 values, int16."""
    bits = _bits(x_N)
    sign, magnitude = bits >> 16 & 0x8000, bits & _MAGNITUDE
    # the adder rounds a subnormal: below 0.5 float32 has the step of the smallest float16
    subnormal = _bits(x_N.abs() + 0.5) - 0x3F000000
    half = magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1) >> 13
    half = torch.where(magnitude < 0x38800000, subnormal, half)
    half = torch.where(magnitude >= 0x477FF000, 0x7C00, half)
    half = torch.where(magnitude > 0x7F800000, 0x7E00, half)
    return (sign | half).to(torch.int16)


def float_from_half(half_N: Tensor) -> Tensor:
    """Float32 values of float16 bit patterns; a NaN becomes quiet and keeps its payload."""
    half = half_N.to(torch.int64) & 0xFFFF
    sign, magnitude = (half & 0x8000) << 16, half & 0x7FFF
    bits = (magnitude << 13) + 0x38000000
    bits = torch.where(magnitude == 0x7C00, 0x7F800000, bits)
    bits = torch.where(magnitude > 0x7C00, 0x7FC00000 | (magnitude & 0x3FF) << 13, bits)
    bits = torch.where(magnitude < 0x400, _bits(magnitude.to(torch.float32) * 2.0**-24), bits)
    return (sign | bits).to(torch.int32).view(torch.float32)


def _bfloat_from_float(x_N: Tensor) -> Tensor:
    bits = _bits(x_N)
    nearest = bits + 0x7FFF + (bits >> 16 & 1) >> 16
    nan = bits >> 16 & 0x8000 | 0x7FC0
    return torch.where(bits & _MAGNITUDE > 0x7F800000, nan, nearest).to(torch.int16)


def _row_range(x_RC: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest value and the extent of every row; NaN if either is not finite."""
    low = x_RC.amin(dim=1) + 0.0  # no negative zero
    extent = x_RC.amax(dim=1) - low + 0.0
    bad = ~torch.isfinite(extent)
    return low.masked_fill(bad, torch.nan), extent.masked_fill(bad, torch.nan)


def _quantize_rows(x_RC: Tensor, scale_R: Tensor, bias_R: Tensor, top: float) -> Tensor:
    """round(clamp((x - bias) / scale, 0, top)), half to even; NaN gives 0."""
    inverse = torch.where(scale_R > 0, 1.0 / scale_R, 0.0)
    v = (x_RC - bias_R[:, None]) * inverse[:, None]
    v = torch.where(v > 0, v, 0.0)
    v = torch.where(v < top, v, top)
    return ((v + _ROUNDER) - _ROUNDER).to(torch.uint8)


def _encode_int8(x_RC: Tensor) -> Tensor:
    low, extent = _row_range(x_RC)
    pair_R2 = torch.stack([extent / 255.0, low], dim=1)
    codes = _quantize_rows(x_RC, pair_R2[:, 0], low, 255.0)
    return torch.cat([codes, pair_R2.view(torch.uint8)], dim=1)


def _encode_int4(x_RC: Tensor) -> Tensor:
    low, extent = _row_range(x_RC)
    scale, bias = half_from_float(extent / 15.0), half_from_float(low)
    codes = _quantize_rows(x_RC, float_from_half(scale), float_from_half(bias), 15.0)
    even = torch.nn.functional.pad(codes, (0, codes.shape[1] % 2))
    packed = even[:, 0::2] | even[:, 1::2] << 4
    return torch.cat([packed, torch.stack([scale, bias], dim=1).view(torch.uint8)], dim=1)


def _read_row(kind: Kind, reader: Reader, i: int, cols: int) -> Tensor:
    reader.part = f"row {i}"
    if kind == Kind.INT8:
        codes = from_bytes(reader.take(cols, "codes"), torch.uint8)
    else:
        pairs = from_bytes(reader.take((cols + 1) // 2, "codes"), torch.uint8)
        codes = torch.stack([pairs & 15, pairs >> 4], dim=1).flatten()[:cols]
    scale = _read_float(kind, reader, "scale")
    bias = _read_float(kind, reader, "bias")
    return codes.to(torch.float32) * scale + bias


def _read_float(kind: Kind, reader: Reader, field: str) -> Tensor:
    if kind == Kind.INT8:
        value = from_bytes(reader.take(4, field), torch.float32)
    else:
        value = float_from_half(from_bytes(reader.take(2, field), torch.int16))
    reader.note(repr(float(value)))
    return value
