"""Turned rows: the coordinates of rows along other axes.

``out[i, j] = x[i, 0] * axes[0, j] + x[i, 1] * axes[1, j] + ...`` in float32, added in this order, every operation rounded on
its own.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from laconic.kernels.reference.batch import Array, check

__all__ = ["turn_rows"]


def turn_rows(x_RD: Array, counts: Array, turned: Array, axes_DD: Array, out_RD: Array) -> None:
    """Turn the rows of some blocks, and copy those of the others."""
    check(axes_DD.shape == (x_RD.shape[1],) * 2, "axes: expected a square of the columns of x")
    check(out_RD.shape == x_RD.shape, "out: expected the shape of x")
    check(len(counts) == len(turned), "turned: expected one for each block")
    check(
        bool((counts >= 0).all()) and int(counts.sum()) == len(x_RD), "counts: expected to add up to the rows"
    )
    ends = np.concatenate([[0], np.cumsum(counts)]).tolist()
    for (start, end), is_turned in zip(pairwise(ends), turned, strict=True):
        block_RD = x_RD[start:end].copy()
        if is_turned:
            with np.errstate(all="ignore"):
                sums_RD = block_RD[:, :1] * axes_DD[0]
                for k in range(1, len(axes_DD)):
                    sums_RD += block_RD[:, k : k + 1] * axes_DD[k]
            block_RD = sums_RD
        out_RD[start:end] = block_RD
