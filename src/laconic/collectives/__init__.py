"""Rows, gradients and ids between ranks, compressed as an exchange plan says; and sums over all ranks.

The names below load on first use: ``laconic.collectives.aggregator`` needs no torch and does not wait for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laconic.collectives.layout import Layout
    from laconic.collectives.ledger import Ledger
    from laconic.collectives.optimizer import RowOptimizer, RowwiseAdagrad, Sgd
    from laconic.collectives.reduction import LargeFirst, Levels, Reducer
    from laconic.collectives.reduction.all_reduce import all_reduce
    from laconic.collectives.table import Table

_HOMES = {
    "Layout": "layout",
    "Ledger": "ledger",
    "RowOptimizer": "optimizer",
    "RowwiseAdagrad": "optimizer",
    "Sgd": "optimizer",
    "LargeFirst": "reduction",
    "Levels": "reduction",
    "Reducer": "reduction",
    "all_reduce": "reduction",
    "Table": "table",
}

__all__ = [
    "LargeFirst",
    "Layout",
    "Ledger",
    "Levels",
    "Reducer",
    "RowOptimizer",
    "RowwiseAdagrad",
    "Sgd",
    "Table",
    "all_reduce",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'laconic.collectives' has no attribute {name!r}")
    return getattr(import_module(f"laconic.collectives.{_HOMES[name]}"), name)
