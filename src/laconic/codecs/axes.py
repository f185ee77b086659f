"""Axes: directions along which rows are rounded, instead of those in which tables have them.

The dimensions of an embedding are alike to a model: any rotation of all tables computes the same dot products. Rows of a trained one are
long in a few directions and short in the others, and these are not the ones they are stored in. Along them most coordinates are close to zero, and
take fewer bits at the same error.

A bound then holds for the coordinates: each is within it, and a row within ``bound * sqrt(D)`` of itself, its Euclidean length, which is also what
bounds on the values would promise for the row; a single value may be off by up to as much. A value that is not finite leaves none of its row finite.
Shape legend: ``D`` dimensions, ``R`` rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic import kernels
from laconic.errors import ConfigError

__all__ = ["Axes", "second_moment"]

Matrix = NDArray[np.float32]
_MOST_SKEW = 1e-3


@dataclass(frozen=True)
class Axes:
    """An orthonormal basis, as a value."""

    dim: int
    data: bytes
    """Of a float32 matrix, dim x dim, whose columns are the axes."""

    def __post_init__(self) -> None:
        if len(self.data) != 4 * self.dim**2:
            raise ConfigError(
                f"axes: expected {4 * self.dim**2} bytes for {self.dim} dimensions, got {len(self.data)}"
            )
        skew = float(np.abs(self.matrix_DD.T @ self.matrix_DD - np.eye(self.dim)).max())
        if not skew < _MOST_SKEW:
            raise ConfigError(
                f"axes: expected columns of length 1 at right angles, got products up to {skew:.2g} off"
            )

    @classmethod
    def of(cls, matrix_DD: NDArray[Any]) -> Axes:
        """From a matrix whose columns are the axes."""
        return cls(len(matrix_DD), np.ascontiguousarray(matrix_DD, "<f4").tobytes())

    @classmethod
    def principal(cls, moment_DD: NDArray[np.float64]) -> Axes:
        """Eigenvectors of second moments, the longest direction first; ``ConfigError`` where these are not finite."""
        if not np.isfinite(moment_DD).all():
            raise ConfigError("axes: expected finite second moments, got NaN or an infinity among them")
        return cls.of(np.linalg.eigh(moment_DD)[1][:, ::-1])

    @cached_property
    def matrix_DD(self) -> Matrix:
        """Columns are the axes; read-only."""
        return np.frombuffer(self.data, "<f4").reshape(self.dim, self.dim)

    @cached_property
    def _back_DD(self) -> Matrix:
        return np.ascontiguousarray(self.matrix_DD.T)

    @cached_property
    def digest(self) -> str:
        """Text that differs where axes do."""
        return blake2b(self.data, digest_size=8).hexdigest()

    def __repr__(self) -> str:
        return f"Axes(dim={self.dim}, digest={self.digest!r})"

    def turn(
        self, rows_RD: Matrix, counts: NDArray[np.int64], turned: NDArray[np.bool_], out: Matrix
    ) -> None:
        """Fill ``out`` with coordinates, of the blocks that are turned; the others are copied."""
        kernels.active().turn_rows(rows_RD, counts, turned, self.matrix_DD, out)

    def turn_back(self, rows_RD: Matrix, counts: NDArray[np.int64], turned: NDArray[np.bool_]) -> None:
        """Replace coordinates by rows."""
        kernels.active().turn_rows(rows_RD, counts, turned, self._back_DD, rows_RD)


def second_moment(table_R: NDArray[np.int64], rows_RD: NDArray[np.float32]) -> NDArray[np.float64]:
    """Mean outer product of the rows of each table, of trace 1, added up by numbers of rows: long tables do not outweigh others, and one that is not finite is left out."""
    dim = rows_RD.shape[1]
    moment_DD = np.zeros((dim, dim))
    for t in np.unique(table_R):
        mine_RD = rows_RD[table_R == t].astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            of_table_DD = mine_RD.T @ mine_RD
        if 0 < (trace := float(np.trace(of_table_DD))) < math.inf:
            moment_DD += len(mine_RD) / trace * of_table_DD
    return moment_DD
