"""Which of up to 32,768 places are taken: Elias-Fano, or a bitmap where that is smaller.

Both sides know how many places there are and how many are taken. The form follows from these two
numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from laconic.kernels.reference.byte_io import expect

__all__ = ["decode_positions", "encode_positions", "positions_bytes"]

Places = NDArray[np.int64]
Bytes = NDArray[np.uint8]


def positions_bytes(places: int, taken: int) -> int:
    """Bytes of ``taken`` out of ``places``."""
    if taken in (0, places):
        return 0
    low_bytes, high_bytes = _elias_fano_bytes(places, taken)
    return min(low_bytes + high_bytes, (places + 7) // 8)


def encode_positions(at_N: Places, places: int) -> Bytes:
    """Write ascending places."""
    taken = len(at_N)
    if taken in (0, places):
        return np.empty(0, np.uint8)
    low_bytes, high_bytes = _elias_fano_bytes(places, taken)
    if (places + 7) // 8 <= low_bytes + high_bytes:
        return _bytes_of(at_N, places)
    low = _low_bits(places, taken)
    lows = (at_N[:, None] >> np.arange(low) & 1).reshape(-1)
    ones = (at_N >> low) + np.arange(taken)
    return np.concatenate(
        [np.packbits(lows.astype(bool), bitorder="little"), _bytes_of(ones, 8 * high_bytes)]
    )


def decode_positions(data: Bytes, places: int, taken: int) -> Places:
    """Undo ``encode_positions``; ``FormatError`` if the bytes are not what it writes."""
    if taken in (0, places):
        return np.arange(taken)
    low_bytes, high_bytes = _elias_fano_bytes(places, taken)
    if (places + 7) // 8 <= low_bytes + high_bytes:
        bitmap_N = _ones_of(data)
        outside = len(bitmap_N) > 0 and bitmap_N[-1] >= places
        expect(
            len(bitmap_N) <= taken and not outside, "positions: a bitmap of other places than were announced"
        )
        expect(len(bitmap_N) == taken, "positions: a bitmap of fewer places than were announced")
        return bitmap_N
    low = _low_bits(places, taken)
    ones = _ones_of(data[low_bytes:])
    bits = np.unpackbits(data[:low_bytes], bitorder="little").astype(np.int64)
    lows = (bits[: taken * low].reshape(taken, low) << np.arange(low)).sum(1)
    known = min(len(ones), taken)
    at_N: Places = (ones[:known] - np.arange(known) << low) + lows[:known]
    ascending = bool((np.diff(at_N, prepend=-1) > 0).all() and (at_N < places).all())
    expect(ascending, "positions: places that do not ascend, or lie outside")
    expect(len(ones) <= taken, "positions: more places than were announced")
    expect(len(ones) == taken, "positions: fewer places than were announced")
    expect(not bits[taken * low :].any(), "positions: bits after the last place")
    return at_N


def _low_bits(places: int, taken: int) -> int:
    """Low bits of a place that are written as they are; the rest is written in unary."""
    return (places // taken).bit_length() - 1


def _elias_fano_bytes(places: int, taken: int) -> tuple[int, int]:
    low = _low_bits(places, taken)
    return (taken * low + 7) // 8, (taken + (places - 1 >> low) + 7) // 8


def _bytes_of(ones: Places, bits: int) -> Bytes:
    bitmap = np.zeros(bits, bool)
    bitmap[ones] = True
    return np.packbits(bitmap, bitorder="little")


def _ones_of(data: Bytes) -> Places:
    return np.flatnonzero(np.unpackbits(data, bitorder="little"))
