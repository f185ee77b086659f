"""Kernels: the operations on batches of blocks and rows, one implementation for each process.

========== ==================================================== =========
name       what it is                                           speed
========== ==================================================== =========
avx2       C++ for x86-64 with AVX2 and BMI2                    fastest
scalar     the same C++ for any machine
reference  Python and torch: the specification that one reads   slow
========== ==================================================== =========

All of them produce the same bytes and the same values. The best one available is used;
``LACONIC_KERNELS`` forces one by name, and a forced one that is not there is an error.
"""

from __future__ import annotations

import os
from functools import cache

from laconic.errors import BackendError
from laconic.kernels.api import Array, Kernels
from laconic.kernels.operands import LayerThresholds, RowBags, RowNoise, RowTable, RowUpdate, SparseParts
from laconic.kernels.optimizer import Optimizer

__all__ = [
    "ENVIRONMENT",
    "Array",
    "Kernels",
    "LayerThresholds",
    "Optimizer",
    "RowBags",
    "RowNoise",
    "RowTable",
    "RowUpdate",
    "SparseParts",
    "active",
    "available",
    "load",
]

ENVIRONMENT = "LACONIC_KERNELS"

_KNOWN = ("avx2", "scalar", "reference")  # best first


def available() -> tuple[str, ...]:
    """Names of the kernels that run on this machine, best first."""
    from laconic.kernels.cpu import _native  # noqa: PLC0415

    return (*_native.available(), "reference")


@cache
def load(name: str) -> Kernels:
    """Kernels by name; ``BackendError`` if this machine or build has none of that name."""
    if name not in _KNOWN:
        raise BackendError(f"{ENVIRONMENT}: no such kernels {name!r} (known: {', '.join(_KNOWN)})")
    if name not in available():
        raise BackendError(
            f"{ENVIRONMENT}: kernels {name!r} do not run on this machine (available: {', '.join(available())})"
        )
    if name == "reference":
        from laconic.kernels.reference import Reference  # noqa: PLC0415

        return Reference()
    from laconic.kernels.cpu import _native  # noqa: PLC0415

    return _native.load(name)


@cache
def active() -> Kernels:
    """Kernels in use: the forced ones, or the best available; decided once, at the first use."""
    return load(os.environ.get(ENVIRONMENT) or available()[0])
