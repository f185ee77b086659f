"""Parquet files as one sequence of row groups, each read by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from laconic.errors import ConfigError, FormatError

__all__ = ["RowGroups", "parquet_files"]


def parquet_files(paths: Sequence[str | Path]) -> list[Path]:
    """Files as given; a folder stands for its ``*.parquet``, sorted by name."""
    files: list[Path] = []
    for path in map(Path, paths):
        found = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not found:
            raise ConfigError(f"{path}: no *.parquet in this folder")
        missing = [file for file in found if not file.is_file()]
        if missing:
            raise ConfigError(f"{missing[0]}: no such file")
        files += found
    if not files:
        raise ConfigError("data: expected at least one Parquet file, got none")
    return files


@dataclass(frozen=True, slots=True)
class _Group:
    file: int
    number: int


class RowGroups:
    """Random access to the row groups of files with the same columns."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self.files = parquet_files(paths)
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

    def file_of(self, group: int) -> Path:
        """Name the file of a row group."""
        return self.files[self._groups[group].file]

    def read(self, group: int, columns: Sequence[str]) -> Any:
        """Read some columns of a row group, as an Arrow table."""
        place = self._groups[group]
        file = self.files[place.file]
        try:
            with self._open(file, self._metadata[place.file]) as opened:
                return opened.read_row_group(place.number, columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            raise FormatError(
                f"{file}: row group {place.number} cannot be read: {_first_line(error)}"
            ) from error

    def tables(self, columns: Sequence[str]) -> Iterator[Any]:
        """Read some columns of all row groups, one after the other."""
        return (self.read(group, columns) for group in range(len(self.rows)))

    def largest(self, column: str) -> int | None:
        """Largest value of an integer column (within lists too) by the files' statistics; None: not known."""
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

    def _open(self, file: Path, metadata: Any = None) -> Any:
        try:
            return pq.ParquetFile(file, metadata=metadata, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise FormatError(f"{file}: not a Parquet file: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
