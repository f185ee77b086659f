"""Rows, gradients and ids between ranks, compressed as an exchange plan says; and sums over all ranks."""

from laconic.collectives.layout import Layout
from laconic.collectives.ledger import Ledger
from laconic.collectives.optimizer import RowOptimizer, RowwiseAdagrad, Sgd
from laconic.collectives.reduction import LargeFirst, Levels, Reducer, all_reduce
from laconic.collectives.table import Table

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
