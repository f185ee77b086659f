"""The promise of the error-bounded codecs, checked in float64."""

from __future__ import annotations

import torch
from torch import Tensor


def absolute_bound(x: Tensor, bound: float, relative: bool) -> float:
    """Return the bound in the unit of the data: a share of the range of the finite values if relative."""
    if not relative:
        return bound
    finite = x[torch.isfinite(x)].double()
    return bound * float(finite.max() - finite.min()) if finite.numel() else 0.0


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
