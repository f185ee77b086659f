"""Levels: floats with two bits behind the leading one, counted from the smallest that matters.

::

    level of x = sign * ((bits of |x| + half) >> 21  -  base)      0 where that is below 1

There are four levels an octave, so the error is at most a ninth of the value. A layer's base is 100
below its largest level. Values below the base, which are 25 octaves smaller than the largest,
become 0. A layer with a value that is not finite has the base -32768, and all of it comes back as
NaN.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from laconic.kernels.reference.blocks.batch import Array, check

__all__ = ["from_levels", "to_levels"]

_SHIFT, _LEVELS, _NO_LEVELS = 21, 100, -32768
_HALF, _NOT_FINITE = 1 << (_SHIFT - 1), 0x7F800000


def to_levels(x: Array, counts: Array, levels: Array, bases: Array) -> None:
    """Fill the levels and the base of every layer."""
    check(int(counts.sum()) == len(x) == len(levels), "counts: expected to add up to the values")
    check(len(counts) == len(bases), "bases: expected one for each layer")
    for layer, (start, end) in enumerate(pairwise(np.concatenate([[0], np.cumsum(counts)]).tolist())):
        bits = x[start:end].view(np.uint32).astype(np.int64)
        sizes = bits & 0x7FFFFFFF
        largest = int(sizes.max(initial=0)) + _HALF
        bases[layer] = _NO_LEVELS if largest >= _NOT_FINITE else (largest >> _SHIFT) - _LEVELS
        found = (sizes + _HALF >> _SHIFT) - bases[layer]
        found[(found < 0) | (sizes == 0) | (bases[layer] == _NO_LEVELS)] = 0
        levels[start:end] = np.where(bits >> 31, -found, found)


def from_levels(levels: Array, counts: Array, bases: Array, out: Array) -> None:
    """Undo ``to_levels``, up to rounding."""
    check(int(counts.sum()) == len(levels) == len(out), "counts: expected to add up to the values")
    check(len(counts) == len(bases), "bases: expected one for each layer")
    check(bool(((bases >= _NO_LEVELS) & (bases < 1024)).all()), "bases: out of range")
    for layer, (start, end) in enumerate(pairwise(np.concatenate([[0], np.cumsum(counts)]).tolist())):
        given = levels[start:end].astype(np.float64)
        fits = (given >= -_LEVELS - 0.5) & (given <= _LEVELS + 0.5)
        level = np.rint(np.where(fits, given, 0)).astype(np.int64)
        place = np.abs(level) + int(bases[layer])
        bits = np.where(
            (level == 0) | (place < 0), 0, (place << _SHIFT) | ((level < 0).astype(np.int64) << 31)
        )
        bits[~fits | (place >= _NOT_FINITE >> _SHIFT)] = 0x7FC00000
        out[start:end] = (bits & 0xFFFFFFFF).astype(np.uint32).view(np.float32)
        if bases[layer] == _NO_LEVELS:
            out[start:end] = np.nan
