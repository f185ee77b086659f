"""The promise of the error-bounded codecs, checked in float64."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def absolute_bound(x: Tensor, bound: float, relative_to: str | None) -> float:
    """Return the bound in the unit of the data: a share of range or RMS of the finite values, or absolute."""
    if relative_to is None:
        return bound
    if relative_to == "rms":
        return bound * root_mean_square(x)
    finite = x[torch.isfinite(x)].double()
    return bound * float(finite.max() - finite.min()) if finite.numel() else 0.0


def root_mean_square(x: Tensor) -> float:
    """RMS of the finite values, summed in eight lanes as the format says."""
    count = int(torch.isfinite(x).sum())
    if not count:
        return 0.0
    squares = torch.where(torch.isfinite(x), x.double().square(), 0.0).flatten()
    lanes_N8 = torch.nn.functional.pad(squares, (0, -squares.numel() % 8)).view(-1, 8).numpy()
    # one after the other, unlike a sum of numpy's
    a, b, c, d, e, f, g, h = lanes_N8.cumsum(axis=0)[-1].tolist()
    return math.sqrt((((a + b) + (c + d)) + ((e + f) + (g + h))) / count)


def assert_within(x: Tensor, y: Tensor, bound: float) -> None:
    """Every finite value within the bound; NaN stays NaN, infinities stay."""
    assert y.shape == x.shape
    assert y.dtype == torch.float32
    x, y = x.double(), y.double()
    assert torch.equal(torch.isnan(x), torch.isnan(y))
    finite = torch.isfinite(x)
    infinite = torch.isinf(x)
    assert torch.equal(x[infinite], y[infinite])
    error = (x[finite] - y[finite]).abs()
    assert bool((error <= bound).all()), f"largest error {error.max().item()!r} is above the bound {bound!r}"
