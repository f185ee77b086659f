"""Ids of hot or warm rows in a file: an ``.npz`` with one int64 array of ascending ids for each table, called as the table.

Whatever the file claims is checked against what the plan says before memory is taken for it. Shape legend: ``R`` rows of
a table that the file names.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from laconic.errors import FormatError
from laconic.files import whole_file

__all__ = ["RowIds", "read_row_ids", "write_row_ids"]

RowIds = dict[str, NDArray[np.int64]]

_LONGEST_HEADER = 4096  # bytes of an .npy file before its values
_THEN = (1980, 1, 1, 0, 0, 0)  # the same ids make the same file at any time


def write_row_ids(path: Path, ids: Mapping[str, NDArray[np.int64]]) -> str:
    """Write ids by table; return the file's SHA-256."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, ids_R in ids.items():
            array = io.BytesIO()
            npy.write_array(array, np.ascontiguousarray(ids_R, "<i8"), version=(1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _THEN), array.getvalue(), zipfile.ZIP_DEFLATED)
    with whole_file(path) as partial:
        partial.write_bytes(content.getvalue())
    return hashlib.sha256(content.getvalue()).hexdigest()


def read_row_ids(path: Path, sha256: str, expected: Mapping[str, tuple[int, int]]) -> RowIds:
    """Read what was written with this checksum; ``expected`` has, for each table, how many ids there are and all its rows."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FormatError(
            f"{path}: ids of rows cannot be read: {error.strerror}; it belongs beside the plan"
        ) from None
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise FormatError(
            f"{path}: expected SHA-256 {sha256}, got {found}; this is not the file that was written with the plan"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            known = sorted(f"{name}.npy" for name in expected)
            if sorted(archive.namelist()) != known:
                raise FormatError(f"{path}: expected arrays {known}, got {sorted(archive.namelist())}")
            return {name: _read(path, archive, name, *counts) for name, counts in expected.items()}
    # the last two: a way to compress that zipfile does not know, and a password
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise FormatError(f"{path}: expected an .npz file, got one that is damaged: {error}") from None


def _read(path: Path, archive: zipfile.ZipFile, name: str, count: int, rows: int) -> NDArray[np.int64]:
    where = f"{path}: table {name!r}"
    with archive.open(f"{name}.npy") as member:
        head = io.BytesIO(member.read(_LONGEST_HEADER))
        try:
            version = npy.read_magic(head)
            if version != (1, 0):
                raise ValueError(f"version {version}")
            shape, _, dtype = npy.read_array_header_1_0(head)
        except ValueError as error:
            raise FormatError(f"{where}: expected an .npy array, got {error}") from None
        if shape != (count,) or dtype != np.dtype("<i8"):
            raise FormatError(f"{where}: expected {count} ids as <i8, got {dtype.str} of shape {shape}")
        values = head.read() + member.read(8 * count + 1)
    if len(values) != 8 * count:
        raise FormatError(f"{where}: expected {8 * count} bytes for {count} ids, got {len(values)} or more")
    ids_R = np.frombuffer(values, "<i8").astype(np.int64)
    if (np.diff(ids_R) <= 0).any() or ids_R[0] < 0 or ids_R[-1] >= rows:
        raise FormatError(f"{where}: expected ascending ids from 0 to {rows - 1}, got {_some(ids_R)}")
    return ids_R


def _some(ids_R: NDArray[np.int64]) -> str:
    shown = ", ".join(str(i) for i in ids_R[:4])
    return f"{shown}, ... {ids_R[-1]}" if len(ids_R) > 4 else shown
