"""What an order-0 coder could reach: the mark that ratios are held against.

Codes are ``round(x / 2 bound)``. Equal rows of codes are sent once, then every row is a
reference to one of them::

    bits = U * D * H(codes of the distinct rows) + R * H(references)

or, where that is more, as it is without duplicates, ``R * D * H(codes)``. ``H`` is the
entropy per symbol, tables for free. A codec that sees order among its references can do
better than this; without such order it cannot.

Shape suffixes: ``R`` rows, ``U`` distinct rows, ``D`` columns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.case import Case

Codes = NDArray[np.unsignedinteger]

_RUN = 1 << 16  # rows at a time, to keep float64 copies small


def ideal_ratio(case: Case) -> float:
    """Raw bytes over ideal bytes; infinite if a single code is all there is."""
    codes_RD = quantize(case.values_RD.numpy(), case.bound)
    row = np.dtype((np.void, codes_RD.itemsize * case.dim))
    first_U, count_U = np.unique(codes_RD.view(row).ravel(), return_index=True, return_counts=True)[1:]
    bits = total_bits(_counts(codes_RD))
    if first_U.size < case.rows:
        bits = min(bits, total_bits(_counts(codes_RD[first_U])) + total_bits(count_U))
    return 8 * case.raw_bytes / bits if bits else float("inf")


def quantize(values_RD: NDArray[np.float32], bound: float) -> Codes:
    """Codes in float64 arithmetic, counted from the smallest, in the narrowest type that holds them."""
    low, high = (np.rint(float(v) / (2 * bound)) for v in (values_RD.min(), values_RD.max()))
    codes_RD = np.empty(values_RD.shape, np.min_scalar_type(int(high - low)))
    for start in range(0, values_RD.shape[0], _RUN):
        part = values_RD[start : start + _RUN].astype(np.float64)
        codes_RD[start : start + _RUN] = np.rint(part / (2 * bound)) - low
    return codes_RD


def total_bits(counts: NDArray[np.int64]) -> float:
    """Entropy of all symbols together, given how often each occurs."""
    used = counts[counts > 0].astype(np.float64)
    return float(-(used * np.log2(used / used.sum())).sum()) + 0.0


def _counts(codes: Codes) -> NDArray[np.int64]:
    return np.unique(codes, return_counts=True)[1] if codes.itemsize > 2 else np.bincount(codes.ravel())
