"""Rows to those who look them up, gradients back to those who own them.

``engine`` is one rank's side of it, ``pipeline`` its threads, ``rows`` and ``ids`` what they send.
"""

from laconic.exchange.ledger import Ledger
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.optimizer import SGD, RowOptimizer, RowwiseAdagrad
from laconic.exchange.tables.table import Table

__all__ = ["SGD", "Layout", "Ledger", "RowOptimizer", "RowwiseAdagrad", "Table"]
