"""A solver that keeps to itself: HiGHS prints now and then, whatever it is told, and JSON may go to standard output."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["silent_stdout"]


@contextmanager
def silent_stdout() -> Iterator[None]:
    """Send what C and C++ print to standard output nowhere; what Python has written waits in its own buffer."""
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
