"""Laconic: distributed training of recommendation models on ordinary networks.

The names below load on first use, so that ``import laconic`` and ``laconic --help`` do not wait
for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laconic.codecs import (
        Batch,
        Bounded,
        BoundedRows,
        Cast,
        Frame,
        Huffman,
        Hybrid,
        IdList,
        VectorLz,
    )

__all__ = ["Batch", "Bounded", "BoundedRows", "Cast", "Frame", "Huffman", "Hybrid", "IdList", "VectorLz"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("laconic.codecs"), name)
    raise AttributeError(f"module 'laconic' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
