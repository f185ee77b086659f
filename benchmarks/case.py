"""One matrix to compress, and the error that is allowed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from laconic.errors import ConfigError

OF_RANGE = "of the range"
OF_RMS = "of the RMS"
ABSOLUTE = "absolute"


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A float32 matrix with its bound.

    Shape suffixes: ``R`` rows, ``D`` columns.
    """

    name: str

    values_RD: Tensor

    asked: float
    """The bound as the user states it, in ``unit``."""

    unit: str

    bound: float
    """The bound in the unit of the data: what the error is compared with."""

    relative: bool = False
    """Laconic's codecs find the range themselves, within their time; peers are told the bound."""

    dither: int | None = None
    """Seed for a dithered codec that takes part as well."""

    blocks: int = 1
    """More than one: compare so many equal blocks in one call with one block."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.values_RD.shape[0]

    @property
    def dim(self) -> int:
        """Number of columns."""
        return self.values_RD.shape[1]

    @property
    def raw_bytes(self) -> int:
        """Bytes as float32."""
        return 4 * self.values_RD.numel()


def relative_case(name: str, values_RD: Tensor, share: float) -> Case:
    """Bound ``share * (max - min)``, as the codecs compute it; ``ConfigError`` without a range."""
    low, high = (float(v) for v in torch.aminmax(values_RD))
    if not high > low:
        raise ConfigError(
            f"{name}: expected values that differ, got {low!r} everywhere, which leaves no range "
            f"for a relative bound; remove it"
        )
    return Case(name, values_RD, share, OF_RANGE, share * (high - low), relative=True)


def distinct_rows(case: Case) -> Case:
    """Keep what a requester that asks for no row twice would get: first occurrences, same bound."""
    rows_RD = np.ascontiguousarray(case.values_RD.numpy())
    whole = rows_RD.view(np.dtype((np.void, rows_RD.itemsize * case.dim))).ravel()
    first = np.unique(whole, return_index=True)[1]
    first.sort()
    return replace(
        case, name=f"{case.name} distinct rows", values_RD=torch.from_numpy(rows_RD[first]), relative=False
    )
