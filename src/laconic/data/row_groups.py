"""Row groups of Parquet files, on disks and in stores that PyArrow has a file system for.

A path is a file, a folder (its ``*.parquet``, sorted by name), a pattern with ``*``, ``?`` or
``[...]`` in the last part, or one of these as a URI, such as ``s3://bucket/day_*.parquet``. What
cannot be read names its file, its row group and, where it is one, its column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from laconic.errors import ConfigError, FormatError

__all__ = ["DataFile", "RowGroups", "data_files"]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file in a file system of PyArrow."""

    system: Any
    path: str
    shown: str
    """How the user would write it."""

    def __str__(self) -> str:
        return self.shown


def data_files(paths: Sequence[str | Path]) -> list[DataFile]:
    """Find the files that paths stand for; ``ConfigError`` if one stands for none."""
    files = [file for path in paths for file in _found(str(path))]
    if not files:
        raise ConfigError("data: expected at least one Parquet file, got none")
    return files


def _found(path: str) -> list[DataFile]:
    system, inner, prefix = _place(path)
    folder, _, last = inner.rpartition("/")
    try:
        info = system.get_file_info(inner)
        if info.type == fs.FileType.File:
            return [DataFile(system, inner, path)]
        if info.type == fs.FileType.Directory:
            return _in_folder(system, inner, "*.parquet", prefix, f"{path}: no *.parquet in this folder")
        if set("*?[") & set(last):
            return _in_folder(system, folder or ".", last, prefix, f"{path}: no file is named so")
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"{path}: cannot be looked up: {_first_line(error)}") from error
    raise ConfigError(f"{path}: no such file")


def _place(path: str) -> tuple[Any, str, str]:
    """Return the file system of a path, the path in it, and what URIs of that system begin with."""
    if "://" not in path:
        return fs.LocalFileSystem(), path, ""
    try:
        system, inner = fs.FileSystem.from_uri(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: expected a path or a URI of a file system that PyArrow knows, such as s3:// or gs:// "
            f"({_first_line(error)})"
        ) from error
    return system, inner, path[: path.index("://") + 3]


def _in_folder(system: Any, folder: str, pattern: str, prefix: str, missing: str) -> list[DataFile]:
    entries = system.get_file_info(fs.FileSelector(folder))
    names = sorted(
        entry.path
        for entry in entries
        if entry.type == fs.FileType.File and fnmatchcase(entry.base_name, pattern)
    )
    if not names:
        raise ConfigError(missing)
    return [DataFile(system, name, f"{prefix}{name}") for name in names]


@dataclass(frozen=True, slots=True)
class _Group:
    file: int
    number: int


class RowGroups:
    """Random access to the row groups of files with the same columns."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self.files = data_files(paths)
        self._metadata = [self._open(file).metadata for file in self.files]
        self._groups: list[_Group] = []
        self.rows: list[int] = []
        """Rows of each row group; empty ones are left out."""
        for file, metadata in enumerate(self._metadata):
            for number in range(metadata.num_row_groups):
                rows = metadata.row_group(number).num_rows
                if rows:
                    self._groups.append(_Group(file, number))
                    self.rows.append(rows)
        self.schema = self._metadata[0].schema.to_arrow_schema()
        """Arrow's schema, of the first file."""

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse files that lack a column, or have it of another type than the first file."""
        for file, metadata in zip(self.files, self._metadata, strict=True):
            schema = metadata.schema.to_arrow_schema()
            for name in names:
                if name not in schema.names:
                    raise FormatError(f"{file}: no column {name!r} (known: {', '.join(schema.names)})")
                expected, got = self.schema.field(name).type, schema.field(name).type
                if expected != got:
                    raise FormatError(
                        f"{file}: column {name!r}: expected {expected} as in {self.files[0]}, got {got}"
                    )

    def where(self, group: int) -> str:
        """Name the file of a row group, and the row group."""
        place = self._groups[group]
        return f"{self.files[place.file]}: row group {place.number}"

    def read(self, group: int, columns: Sequence[str]) -> Any:
        """Read some columns of a row group, as an Arrow table."""
        place = self._groups[group]
        try:
            with self._open(self.files[place.file], self._metadata[place.file]) as opened:
                return opened.read_row_group(place.number, columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            column = self._unreadable(place, columns)
            raise FormatError(f"{self.where(group)} cannot be read{column}: {_first_line(error)}") from error

    def _unreadable(self, place: _Group, columns: Sequence[str]) -> str:
        """Return words for the column that cannot be read, if it is one."""
        for name in columns:
            try:
                with self._open(self.files[place.file], self._metadata[place.file]) as opened:
                    opened.read_row_group(place.number, columns=[name])
            except (pa.ArrowException, OSError):
                return f", column {name!r}"
            except FormatError:  # the file is gone
                return ""
        return ""

    def tables(self, columns: Sequence[str]) -> Iterator[Any]:
        """Read some columns of all row groups, one after the other."""
        return (self.read(group, columns) for group in range(len(self.rows)))

    def largest(self, column: str) -> int | None:
        """Return an integer column's largest value by the files' statistics, if they have it."""
        largest = -1
        for place in self._groups:
            group = self._metadata[place.file].row_group(place.number)
            for number in range(group.num_columns):
                chunk = group.column(number)
                if chunk.path_in_schema.split(".")[0] != column:
                    continue
                if not chunk.is_stats_set or not chunk.statistics.has_min_max:
                    return None
                largest = max(largest, int(chunk.statistics.max))
        return largest

    def _open(self, file: DataFile, metadata: Any = None) -> Any:
        try:
            return pq.ParquetFile(
                file.path, metadata=metadata, filesystem=file.system, page_checksum_verification=True
            )
        except FileNotFoundError as error:
            raise FormatError(f"{file}: the file is gone") from error
        except (pa.ArrowException, OSError) as error:
            raise FormatError(f"{file}: not a Parquet file: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
