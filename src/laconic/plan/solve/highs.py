"""Mixed-integer programs, solved by HiGHS in silence.

HiGHS prints now and then, whatever it is told, and JSON may go to standard output.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Milp", "silent_stdout"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Milp:
    """Minimize ``price @ x`` where ``low <= matrix @ x <= high`` and ``0 <= x <= upper``.

    ``matrix`` has a row for each constraint. Shape legend: ``X`` unknowns, ``Y`` constraints.
    """

    price_X: Floats
    upper_X: Floats
    matrix: Any
    low_Y: Floats
    high_Y: Floats

    def solve(
        self, whole_X: NDArray[np.bool_] | None, *, gap: float, time_limit_s: float | None = None
    ) -> tuple[Floats, float] | None:
        """Return the unknowns, and a lower bound of the price; None if nothing was found.

        Unknowns in ``whole_X`` are integers. The price is within ``gap`` of the best, unless time
        is up.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 -- optional

        limit = {} if time_limit_s is None else {"time_limit": time_limit_s}
        with silent_stdout():
            found = milp(
                self.price_X,
                integrality=None if whole_X is None else whole_X.astype(np.int64),
                bounds=Bounds(0, self.upper_X),
                constraints=LinearConstraint(self.matrix, self.low_Y, self.high_Y),
                options={"mip_rel_gap": gap, **limit},
            )
        return None if found.x is None else (found.x, float(found.mip_dual_bound or 0.0))


@contextmanager
def silent_stdout() -> Iterator[None]:
    """Discard what C code prints to standard output; Python's own text waits in its buffer."""
    libc = ctypes.CDLL(None)
    libc.fflush(None)
    try:
        kept = os.dup(1)
    except OSError:  # it is closed: nothing can be printed there
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        libc.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
