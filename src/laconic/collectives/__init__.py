"""Rows, gradients and ids between ranks, compressed as an exchange plan says."""

from laconic.collectives.layout import Layout
from laconic.collectives.ledger import Ledger
from laconic.collectives.optimizer import RowOptimizer, RowwiseAdagrad, Sgd
from laconic.collectives.table import Table

__all__ = ["Layout", "Ledger", "RowOptimizer", "RowwiseAdagrad", "Sgd", "Table"]
