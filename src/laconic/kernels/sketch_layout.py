"""Where the entries of a sketched vector go: a function of four numbers that all ranks know.

Cells lie in segments of equal length, one after the other. An entry starts in some segment, which
is none of the last two. It has one cell there and one in each of the two segments after it.

One start, hence three segments, is the classical layout of three hashes. With many starts, the
first and last segments peel first and the others follow like a zip fastener. That needs fewer
cells, and each step of peeling stays within three segments. Few entries do better with one start:
in short segments, two entries often share all three cells.

If there are as many cells as entries, nothing is hashed: cell ``i`` is entry ``i``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

__all__ = ["SketchLayout", "mix"]

_COUPLED_CELLS = 2**18
"""From this number of cells on there is more than one start."""
_CELLS_PER_START = 512
"""The number of starts is the root of cells over this.

So one sketch in 1,000 has two entries that share all their cells.
"""
_MASK = 2**64 - 1


def mix(h: int) -> int:
    """Mix 64 bits: every bit of the result depends on every bit of ``h``.

    This is the finalizer of MurmurHash3.
    """
    h = ((h ^ h >> 33) * 0xFF51AFD7ED558CCD) & _MASK
    h = ((h ^ h >> 33) * 0xC4CEB9FE1A85EC53) & _MASK
    return h ^ h >> 33


@dataclass(frozen=True, slots=True)
class SketchLayout:
    """What the kernels need to know of a sketch."""

    size: int
    """Number of entries of the vector."""
    cells: int
    """Number of cells of the sketch."""
    key: int
    """Key of the hashes, 64 bits."""
    segments: int
    """Number of segments in which an entry may start; 0: cell ``i`` is entry ``i``."""
    length: int
    """Number of cells of a segment."""
    words: int
    """Number of words of the index, 32 bits each."""
    probes: int
    """Number of words of the Bloom filter that know an entry; 0: the index is a bitmap."""

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, size: int, cells: int, seed: int, bloom: bool) -> SketchLayout:
        """Lay ``cells`` and the index out for ``size`` entries."""
        segments = 0 if cells == size else 1 if cells < _COUPLED_CELLS else isqrt(cells // _CELLS_PER_START)
        length = cells // (segments + 2) if segments else 0
        words, probes = _filter_size(size, cells) if bloom else (-(-size // 32), 0)
        return cls(size, cells, mix((seed + 0x9E3779B97F4A7C15) & _MASK), segments, length, words, probes)

    @property
    def numbers(self) -> NDArray[np.uint64]:
        """The fields in their order, for the native kernels."""
        fields = (self.size, self.cells, self.key, self.segments, self.length, self.words, self.probes)
        return np.array(fields, np.uint64)


def _filter_size(size: int, cells: int) -> tuple[int, int]:
    """Return words and probes of the filter.

    It has about 9 bits an entry, and 1.5 more each time the vector gets twice as sparse. So a
    filter of 100 entries takes at most 8 other positions for entries. Fewer bits would cost more
    cells than they save.
    """
    log_sparsity = (size // cells).bit_length() - 1
    return -(-cells * (35 + 6 * log_sparsity) // 160), 3 + log_sparsity // 3
