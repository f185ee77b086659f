"""Laconic: distributed training of recommendation models on ordinary networks.

The names below load on first use, so that ``import laconic`` and ``laconic --help`` do not wait
for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laconic.adapt.compression import Compression
    from laconic.codecs import (
        Batch,
        Bounded,
        BoundedRows,
        Cast,
        Frame,
        Huffman,
        Hybrid,
        IdList,
        Lossless,
        Sketch,
        Threshold,
        VectorLz,
    )
    from laconic.errors import LaconicError
    from laconic.exchange import SGD, RowwiseAdagrad, Table
    from laconic.exchange.tables.placement import RowPlacement
    from laconic.integrations.ddp import register_ddp
    from laconic.lookups import Lookups
    from laconic.nn import DividedMlp, ShardedEmbeddings, Split, sum_gradients
    from laconic.reduce import Exact, LargeFirst, Levels, Rounded, all_reduce
    from laconic.reduce.network import InNetwork

_HOMES = {
    "laconic.adapt.compression": ("Compression",),
    "laconic.codecs": (
        "Batch",
        "Bounded",
        "BoundedRows",
        "Cast",
        "Frame",
        "Huffman",
        "Hybrid",
        "IdList",
        "Lossless",
        "Sketch",
        "Threshold",
        "VectorLz",
    ),
    "laconic.errors": ("LaconicError",),
    "laconic.exchange": ("SGD", "RowwiseAdagrad", "Table"),
    "laconic.reduce": ("Exact", "LargeFirst", "Levels", "Rounded", "all_reduce"),
    "laconic.reduce.network": ("InNetwork",),
    "laconic.exchange.tables.placement": ("RowPlacement",),
    "laconic.integrations.ddp": ("register_ddp",),
    "laconic.lookups": ("Lookups",),
    "laconic.nn": ("DividedMlp", "ShardedEmbeddings", "Split", "sum_gradients"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "SGD",
    "Batch",
    "Bounded",
    "BoundedRows",
    "Cast",
    "Compression",
    "DividedMlp",
    "Exact",
    "Frame",
    "Huffman",
    "Hybrid",
    "IdList",
    "InNetwork",
    "LaconicError",
    "LargeFirst",
    "Levels",
    "Lookups",
    "Lossless",
    "Rounded",
    "RowPlacement",
    "RowwiseAdagrad",
    "ShardedEmbeddings",
    "Sketch",
    "Split",
    "Table",
    "Threshold",
    "VectorLz",
    "all_reduce",
    "register_ddp",
    "sum_gradients",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name == "errors":
        return import_module("laconic.errors")
    raise AttributeError(f"module 'laconic' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
