"""Rows of a table in few bits: find a row's range, then write its codes, its scale and its bias.

::

    2 int8   scale = extent / 255             codes by 255 / (extent + 1e-8), as FBGEMM does
    3 int4   bias and scale of float16        codes by 1 / scale, two a byte, the first low
    4 int2   the same                         four a byte, the first lowest

A format holds finite values: up to 65504 if scale and bias are float16, and up to half of the
largest float32 in int8, so that the extent of a row is finite, too.

Shapes: ``R`` rows, ``D`` numbers of a row, ``W`` bytes of a quantized row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from laconic.kernels.reference.blocks.batch import Array, check
from laconic.kernels.reference.serving.row_ranges import row_ranges

_BITS = {2: 8, 3: 4, 4: 2}
_EPSILON = 1e-8


def quantize_rows(x: Array, format: int, method: int, out: Array, threads: int = 1) -> int:
    """Fill ``out``; or return the first row that the format does not hold."""
    x_RD = torch.from_numpy(x)
    rows, dim = x_RD.shape
    check(dim > 0, "quantize_rows: rows have no numbers")
    check(format in _BITS, "quantize_rows: format must be 2 to 4")
    check(method in (0, 1, 2), "quantize_rows: method must be 0 to 2")
    bits, parameters = _BITS[format], 8 if format == 2 else 4
    width = (dim * bits + 7) // 8 + parameters
    check(out.shape == (rows, width), "quantize_rows: out has the wrong shape")
    if not rows:
        return -1
    most = torch.finfo(torch.float32).max / 2 if format == 2 else 65504.0
    wrong_R = ~(x_RD.abs().amax(dim=1) <= most)
    if wrong_R.any():
        return int(wrong_R.nonzero()[0])
    low_R, high_R = row_ranges(x_RD, 2**bits - 1, method, half=format != 2)
    written = _int8(x_RD, low_R, high_R) if format == 2 else _packed(x_RD, low_R, high_R, bits)
    out[:] = written.numpy()
    return -1


def _int8(x_RD: Tensor, low_R: Tensor, high_R: Tensor) -> Tensor:
    extent_R = high_R - low_R
    # one division: a number over a tensor is a reciprocal and a product to torch, rounded twice
    inverse_R = torch.full_like(extent_R, 255.0) / (extent_R + _EPSILON)
    codes_RD = _codes(x_RD, low_R, inverse_R, 255)
    return torch.cat([codes_RD, torch.stack([extent_R / 255, low_R], dim=1).view(torch.uint8)], dim=1)


def _packed(x_RD: Tensor, low_R: Tensor, high_R: Tensor, bits: int) -> Tensor:
    top, each = 2**bits - 1, 8 // bits
    low_R = low_R.half().float()
    extent_R = high_R - low_R
    scale_R = torch.where(extent_R == 0, 1.0, extent_R / top).half().float()
    scale_R = torch.where((scale_R == 0) | torch.isinf(1.0 / scale_R), 1.0, scale_R)
    codes_RD = _codes(x_RD, low_R, 1.0 / scale_R, top)
    padded = torch.nn.functional.pad(codes_RD, (0, -codes_RD.shape[1] % each))
    packed = padded[:, 0::each].clone()
    for k in range(1, each):
        packed |= padded[:, k::each] << (bits * k)
    return torch.cat([packed, torch.stack([scale_R, low_R], dim=1).half().view(torch.uint8)], dim=1)


def _codes(x_RD: Tensor, bias_R: Tensor, inverse_R: Tensor, top: int) -> Tensor:
    steps_RD = (x_RD - bias_R[:, None]) * inverse_R[:, None]
    return torch.where(steps_RD > 0, steps_RD, 0.0).clamp(max=top).round().to(torch.uint8)
