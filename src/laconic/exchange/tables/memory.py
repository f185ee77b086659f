"""Memory of a rank's rows: anonymous memory, and behind it, in one piece, a mapped file.

::

    rows      0 ...                     warm     warm + cold
    address   | anonymous memory          | pages of a file |

Kernels see one matrix. The operating system keeps pages of the file in memory while there is space,
and writes them to disk when there is not, so a table may be larger than memory. The file has no
name: it is gone with its process, however that ends, and checkpoints are what lasts. Its blocks are
reserved, because a page that finds the disk full when it is written cannot become an error message:
it is a signal that kills.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import weakref
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from laconic.errors import PlanError

__all__ = ["ALIGNMENT", "allocate_rows"]

ALIGNMENT = 1 << 14
"""The number of warm rows is a multiple of it. Then cold rows begin on a page, whatever their
dimension, for pages of up to 64 kB."""

_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000  # of Linux, on x86 and ARM
_MADV_RANDOM = 1
_FAILED = ctypes.c_void_p(-1).value


def allocate_rows(
    warm: int, cold: int, columns: tuple[int, ...], dtype: torch.dtype, folder: Path | None
) -> Tensor:
    """Return rows of zeros: the first ``warm`` in memory, the others in a file in ``folder``.

    ``PlanError`` if they do not fit.
    """
    if not cold:
        return torch.zeros(warm, *columns, dtype=dtype)
    assert warm % ALIGNMENT == 0, "cold rows begin on a page"
    assert folder is not None, "cold rows need a folder"
    row_bytes = int(np.prod(columns, dtype=np.int64)) * dtype.itemsize
    descriptor = _reserve(folder, cold * row_bytes)
    try:
        memory = _map(warm * row_bytes, cold * row_bytes, descriptor)
    finally:
        os.close(descriptor)  # the mapping keeps the file
    kind = np.float64 if dtype == torch.float64 else np.float32
    return torch.from_numpy(np.frombuffer(memoryview(memory), kind).reshape(warm + cold, *columns))


def _reserve(folder: Path, size: int) -> int:
    """Open a file without a name that has all its blocks."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _open(folder)
    except OSError as error:
        raise PlanError(
            f"embeddings.cold_folder: no file can be made in {str(folder)!r}: {error.strerror}; choose another folder"
        ) from error
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        os.close(descriptor)
        free = os.statvfs(folder)
        raise PlanError(
            f"embeddings.cold_folder: {str(folder)!r} has {free.f_bavail * free.f_frsize / 1e9:.3g} GB free, "
            f"this rank's cold rows need {size / 1e9:.3g} GB ({error.strerror}); make room, or choose another folder"
        ) from error
    return descriptor


def _open(folder: Path) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError:  # not every file system has files without names
        descriptor, path = tempfile.mkstemp(dir=folder, prefix=".rows-")
        os.unlink(path)
        return descriptor


def _map(warm: int, cold: int, descriptor: int) -> ctypes.Array[ctypes.c_char]:
    """Map so many bytes of memory, and behind them those of the file."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    access, private = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = libc.mmap(
        None, warm + cold, 0, private | _MAP_NORESERVE, -1, 0
    )  # addresses only, no memory yet
    if address != _FAILED:
        memory = (ctypes.c_char * (warm + cold)).from_address(address)
        weakref.finalize(memory, libc.munmap, address, warm + cold)
        front = libc.mmap(address, warm, access, private | _MAP_FIXED, -1, 0) if warm else address
        behind = libc.mmap(address + warm, cold, access, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0)
        if _FAILED not in (front, behind):
            libc.madvise(
                behind, cold, _MADV_RANDOM
            )  # rows come in no order: reading ahead is reading in vain
            return memory
    raise PlanError(
        f"embeddings: {(warm + cold) / 1e9:.3g} GB of rows cannot be mapped: {os.strerror(ctypes.get_errno())}"
    )
