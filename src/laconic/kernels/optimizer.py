"""Optimizer: what ``Kernels.update_rows`` does with the gradient of a row.

With ``g`` the sum of a row's gradients, ``w`` the row and ``s`` its one value of state::

    SGD               w -= lr * g
    ROWWISE_ADAGRAD   s += mean(g * g);  w -= lr / (sqrt(s) + eps) * g
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Optimizer"]


class Optimizer(IntEnum):
    """The numbers are those of ``csrc/isa/kernels.h``."""

    SGD = 0
    ROWWISE_ADAGRAD = 1
