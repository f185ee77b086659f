"""Tables in the files of a checkpoint, read row by row or piece by piece, never whole.

torch maps a file of a checkpoint into memory as one piece, and a page that was looked at stays. So
its reader only says where in the file the rows are. They are read through a mapping of our own,
which gives pages back as soon as their rows are copied. The mapping keeps a file alive that a run
removes meanwhile.

Shape legend: ``L`` ids, ``D`` numbers of a row, ``K`` rows that one rank saved.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.errors import ConfigError, FormatError
from laconic.train.checkpoint_files import SavedFiles

__all__ = ["SavedPart", "SavedTable", "saved_parts"]

_WINDOW_BYTES = 1 << 23  # mapped at a time
_LOCAL_HEADER = 30  # bytes of a zip file before the name of a record


class _MappedFile:
    """A file whose pages are in memory only while they are looked at."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @contextmanager
    def floats(self, offset: int, count: int) -> Iterator[NDArray[np.float32]]:
        """Look at so many float32 from a place on."""
        first = offset - offset % mmap.PAGESIZE
        yield np.frombuffer(self._map, np.float32, count, offset)
        self._map.madvise(mmap.MADV_DONTNEED, first, offset + 4 * count - first)


@dataclass(frozen=True, slots=True)
class SavedPart:
    """Rows of a table that one rank saved: ``first``, ``first + stride``, ..."""

    first: int
    stride: int
    rows: int
    dim: int
    file: _MappedFile
    offset: int
    """Place of the first row in the file."""

    def copy_span(self, begin: int, to_KD: NDArray[np.float32]) -> None:
        """Copy as many rows of this part as there is space for, from its row ``begin`` on."""
        step = self._window_rows
        for k in range(0, len(to_KD), step):
            count = min(step, len(to_KD) - k)
            with self._window(begin + k, count) as rows_KD:
                to_KD[k : k + count] = rows_KD

    def take(self, places_L: NDArray[np.int64]) -> NDArray[np.float32]:
        """Copy rows of this part, by their numbers in it."""
        order_L = np.argsort(places_L, kind="stable")
        sorted_L = places_L[order_L]
        out_LD = np.empty((len(places_L), self.dim), np.float32)
        done = 0
        while done < len(sorted_L):
            begin = int(sorted_L[done])
            count = min(self._window_rows, self.rows - begin)
            end = int(np.searchsorted(sorted_L, begin + count))
            with self._window(begin, count) as rows_KD:
                out_LD[order_L[done:end]] = rows_KD[sorted_L[done:end] - begin]
            done = end
        return out_LD

    @property
    def _window_rows(self) -> int:
        return max(_WINDOW_BYTES // (4 * self.dim), 1)

    @contextmanager
    def _window(self, begin: int, count: int) -> Iterator[NDArray[np.float32]]:
        with self.file.floats(self.offset + 4 * self.dim * begin, count * self.dim) as values:
            yield values.reshape(count, self.dim)


class SavedTable:
    """A table whose rows are in files; a ``TableRows`` of ``quantize.formats``."""

    def __init__(self, name: str, rows: int, dim: int, parts: tuple[SavedPart, ...]) -> None:
        """``parts`` have every row once."""
        self._name, self._parts = name, parts
        self.shape, self.dtype = torch.Size((rows, dim)), torch.float32

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | Tensor, /) -> Tensor:
        """Read rows that follow one another, or those of ids."""
        if isinstance(rows, Tensor):
            return self._rows_of(rows.numpy())
        begin, end, step = rows.indices(len(self))
        return self._span(begin, end) if step == 1 else self[torch.arange(begin, end, step)]

    def _span(self, begin: int, end: int) -> Tensor:
        out_LD = np.empty((max(end - begin, 0), self.shape[1]), np.float32)
        for part in self._parts:
            low, high = (
                min(max(-(-(row - part.first) // part.stride), 0), part.rows) for row in (begin, end)
            )
            if low < high:
                part.copy_span(low, out_LD[part.first + low * part.stride - begin :: part.stride])
        return torch.from_numpy(out_LD)

    def _rows_of(self, ids_L: NDArray[np.int64]) -> Tensor:
        if len(wrong := np.flatnonzero((ids_L < 0) | (ids_L >= len(self)))):
            raise ConfigError(
                f"model: table {self._name!r} has rows 0 to {len(self) - 1}, got id {int(ids_L[wrong[0]])}"
            )
        out_LD = np.empty((len(ids_L), self.shape[1]), np.float32)
        for part in self._parts:
            here = np.flatnonzero((ids_L >= part.first) & ((ids_L - part.first) % part.stride == 0))
            out_LD[here] = part.take((ids_L[here] - part.first) // part.stride)
        return torch.from_numpy(out_LD)


def saved_parts(saved: SavedFiles) -> dict[str, list[SavedPart]]:
    """Verify the files of all ranks, and find every table's rows in them."""
    found: dict[str, list[SavedPart]] = {}
    for rank in range(saved.ranks):
        shards, path = saved.tables(rank), saved.path / saved.tables_of(rank)
        starts = _starts(path, shards)
        file = _MappedFile(path)
        for name, shard in shards.items():
            weight = shard["weight"]
            if weight.dim() != 2 or weight.dtype != torch.float32 or not weight.is_contiguous():
                raise FormatError(
                    f"{path}: table {name!r}: expected a matrix of float32, row by row, got {weight.dtype} of "
                    f"shape {tuple(weight.shape)} and strides {weight.stride()}"
                )
            rows, dim = weight.shape
            first, stride = int(shard["first"]), int(shard["stride"])
            place = starts.get(weight.untyped_storage().data_ptr(), 0) + 4 * weight.storage_offset()
            found.setdefault(name, []).append(SavedPart(first, stride, rows, dim, file, place))
    return found


def _starts(path: Path, shards: dict[str, dict[str, Any]]) -> dict[int, int]:
    """Return where in the file each storage begins, by its address.

    The file is a zip archive with a record for every storage, not compressed. torch maps it as one
    piece, so records and storages have the same distances.
    """
    tensors = [value for shard in shards.values() for value in shard.values() if isinstance(value, Tensor)]
    storages = [tensor.untyped_storage() for tensor in tensors]
    addresses = sorted({storage.data_ptr() for storage in storages if storage.nbytes()})
    starts = sorted(_records(path))
    if len(starts) != len(addresses) or len({a - s for a, s in zip(addresses, starts, strict=True)}) > 1:
        raise FormatError(f"{path}: expected tensors alone, as laconic train writes them")
    return dict(zip(addresses, starts, strict=True))


def _records(path: Path) -> Iterator[int]:
    with ZipFile(path) as archive, path.open("rb") as file:
        for record in archive.infolist():
            if "/data/" in record.filename and record.file_size:
                file.seek(record.header_offset + _LOCAL_HEADER - 4)
                name, extra = struct.unpack("<HH", file.read(4))
                yield record.header_offset + _LOCAL_HEADER + name + extra
