"""Rows to those who look them up and gradients back to those who own them, as an exchange plan says."""

from laconic.exchange.ledger import Ledger
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.optimizer import RowOptimizer, RowwiseAdagrad, Sgd
from laconic.exchange.tables.table import Table

__all__ = ["Layout", "Ledger", "RowOptimizer", "RowwiseAdagrad", "Sgd", "Table"]
