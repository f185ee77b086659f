"""Sorting of int64 keys that are not negative: their order, and which of them are distinct."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["distinct_keys", "stable_order"]

Array = NDArray[Any]


def stable_order(keys: Array, order: Array) -> None:
    """Fill ``order`` with the places of the keys in ascending order; equal ones keep theirs."""
    if len(order) != len(keys):
        raise ValueError("order must be as long as the keys")
    _check(keys)
    order[:] = np.argsort(keys, kind="stable")


def distinct_keys(keys: Array, distinct: Array, inverse: Array) -> int:
    """Write distinct keys in ascending order, and which of them each is; return their number."""
    if not len(distinct) == len(inverse) == len(keys):
        raise ValueError("distinct and inverse must be as long as the keys")
    _check(keys)
    found, inverse[:] = np.unique(keys, return_inverse=True)
    distinct[: len(found)] = found
    return len(found)


def _check(keys: Array) -> None:
    for key in keys[keys < 0].tolist():
        raise ValueError(f"expected keys of at least 0, got {key}")
