"""Samples from Parquet files, shuffled with bounded memory.

Row groups are read in an order that is drawn for each epoch. Several of them are a *window*, whose
samples are shuffled among themselves. Windows have about ``window_rows`` rows: less than one and a
half times that, plus half a row group at either end. This bounds memory, at 4 bytes for each
feature of a sample in the window. The place of every sample follows from the row groups' counts, so
``start`` reads no more than the window that it falls into. "eval" keeps the order of the files.
Every rank decodes every row group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from laconic.data.columns import CategoricalColumns, ColumnSettings, DenseColumns
from laconic.data.dense import Dense, measured
from laconic.data.division import Division
from laconic.data.hashing import key64
from laconic.data.odd_counts import OddCounts
from laconic.data.odd_values import OddValues
from laconic.data.raw_source import RawValues
from laconic.data.raw_values import kind_of_values, raw_values
from laconic.data.sample_block import SampleBlock
from laconic.data.sample_decoder import SampleDecoder, flat, is_bag
from laconic.data.source import Samples, check_split, permute, rank_slices
from laconic.data.vocabulary import Hashed, IdMap, Known, read_vocabulary
from laconic.errors import ConfigError, FormatError
from laconic.lookups import Lookups

__all__ = ["Parquet", "RowGroups", "dense_features", "id_map", "parquet_files"]


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

    def _open(self, file: Path, metadata: Any = None) -> Any:
        try:
            return pq.ParquetFile(file, metadata=metadata, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise FormatError(f"{file}: not a Parquet file: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


_IN_ORDER = 32768


@dataclass(frozen=True, slots=True)
class _Window:
    begin: int
    groups: tuple[int, ...]
    key: np.uint64 | None
    """Key of the shuffle; None: samples keep their order."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    window: _Window
    block: SampleBlock
    rows: NDArray[np.int64]
    """Rows of the block that belong to the split."""

    def take(self, begin: int, end: int) -> SampleBlock:
        """Copy samples at positions of the epoch, as far as they are in this window."""
        place = np.arange(max(begin - self.window.begin, 0), min(end - self.window.begin, self.rows.size))
        if self.window.key is not None:
            place = permute(place, self.rows.size, self.window.key)
        return self.block.take(self.rows[place])


class Parquet:
    """A source that streams files with one row for each sample."""

    def __init__(
        self,
        paths: Sequence[str | Path],
        columns: ColumnSettings,
        *,
        seed: int = 0,
        window_rows: int = 1 << 20,
    ) -> None:
        self._groups = RowGroups(paths)
        where = str(self._groups.files[0])
        columns = columns.expanded(self._groups.schema.names, where=where)
        maps = {c.columns: id_map(c, self._groups, where) for c in columns.categorical}
        self._decoder = SampleDecoder(
            columns.label, dense_features(columns.dense, self._groups), maps, self._groups.schema
        )
        self._columns, self._maps = columns, maps
        self._odd, self._counted = OddValues(self._decoder.dense, maps), set[int]()
        self._ids = SampleDecoder(columns.label, (), maps, self._groups.schema)
        self.schema = self._decoder.schema
        self._groups.check_columns(self._decoder.columns)
        time = getattr(columns.split, "column", None)
        times = self._groups.tables([time]) if time else ()
        self._division = Division(columns.split, self._groups.rows, times)
        self._time = [time] if time else []
        self._seed = seed
        self._window_rows = window_rows

    def raw_values(self) -> RawValues:
        """Return how raw values become samples; reads the vocabularies of prepared columns."""
        return raw_values(self._columns, self._decoder.dense, self._maps, self._groups.schema)

    def odd_values(self) -> tuple[OddCounts, ...]:
        """Return columns with replaced values in the row groups read so far, each counted once."""
        return self._odd.columns()

    def samples_in(self, split: str) -> int:
        """Count the samples of an epoch."""
        check_split(split)
        return sum(self._division.counts[split])

    def batches(
        self, split: str, *, global_batch: int, rank: int, ranks: int, epoch: int = 0, start: int = 0
    ) -> Iterator[Samples]:
        """Yield this rank's slice of every global batch, from sample ``start`` of the epoch on."""
        slices = rank_slices(
            self.samples_in(split), global_batch=global_batch, rank=rank, ranks=ranks, start=start
        )
        return self._gather(split, slices, self._windows(split, epoch))

    def lookups_in_order(self, split: str) -> Iterator[Lookups]:
        """Yield the lookups of all samples in the order of the files, one row group at a time."""
        check_split(split)
        return (
            block.samples().lookups
            for group in range(len(self._groups.rows))
            for block in self._blocks_in_order(split, group)
        )

    def _blocks_in_order(self, split: str, group: int) -> Iterator[SampleBlock]:
        loaded = self._load(split, _Window(0, (group,), None), self._ids)
        for begin in range(0, loaded.rows.size, _IN_ORDER):
            yield loaded.take(begin, begin + _IN_ORDER)

    def _windows(self, split: str, epoch: int) -> list[_Window]:
        counts = self._division.counts[split]
        order = np.arange(len(counts))
        if split == "train":
            order = permute(order, len(counts), key64("row groups", self._seed, epoch))
        rows = np.array([self._groups.rows[group] for group in order])
        windows: list[_Window] = []
        begin = 0
        for groups in _near_equal(rows, self._window_rows):
            key = key64("window", self._seed, epoch, len(windows)) if split == "train" else None
            windows.append(_Window(begin, tuple(int(group) for group in order[groups]), key))
            begin += sum(counts[group] for group in windows[-1].groups)
        return windows

    def _gather(
        self, split: str, slices: Iterator[tuple[int, int]], windows: list[_Window]
    ) -> Iterator[Samples]:
        begins = np.array([window.begin for window in windows])
        nothing = self._decoder.decode([], 0)
        loaded: _Loaded | None = None
        for begin, end in slices:
            parts = [nothing] if begin == end else []
            at = begin
            while at < end:
                number = int(np.searchsorted(begins, at, side="right")) - 1
                if loaded is None or loaded.window is not windows[number]:
                    loaded = None  # let go of one window before the next is read
                    loaded = self._load(split, windows[number], self._decoder)
                parts.append(loaded.take(at, end))
                at += parts[-1].label_N.size
            yield SampleBlock.join(parts).samples()

    def _load(self, split: str, window: _Window, decoder: SampleDecoder) -> _Loaded:
        rows: list[NDArray[np.int64]] = []
        first = 0
        where = ""

        def tables() -> Iterator[Any]:
            nonlocal first, where
            for group in window.groups:
                where = ""
                table = self._groups.read(group, [*decoder.columns, *self._time])
                where = f"{self._groups.file_of(group)}: "
                if decoder is self._decoder and group not in self._counted:
                    self._odd.add(table)
                    self._counted.add(group)
                rows.append(self._division.select(split, group, table) + first)
                first += table.num_rows
                yield table

        try:
            block = decoder.decode(tables(), sum(self._groups.rows[group] for group in window.groups))
        except FormatError as error:
            raise FormatError(f"{where}{error}") from error
        return _Loaded(window, block, np.concatenate(rows))


def _near_equal(rows: NDArray[np.int64], target: int) -> list[NDArray[np.int64]]:
    """Cut a sequence of row groups into windows of nearly equal size, about ``target`` rows."""
    total = int(rows.sum())
    count = max(1, round(total / target))
    middle = np.cumsum(rows) - rows / 2
    number = np.minimum((middle * count / max(total, 1)).astype(np.int64), count - 1)
    return [np.flatnonzero(number == n) for n in np.unique(number)]


def dense_features(entries: Sequence[DenseColumns], groups: RowGroups) -> list[Dense]:
    """Make the described transforms; a scan finds mean and deviation if one needs them."""
    features = [Dense(entry.columns, entry.transform.startswith("log1p")) for entry in entries]
    for feature in features:
        kind = groups.schema.field(feature.column).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise ConfigError(f"{groups.files[0]}: dense {feature.column!r}: expected numbers, got {kind}")
    scaled = [
        f for f, entry in zip(features, entries, strict=True) if entry.transform.endswith("standardize")
    ]
    found = (
        {f.column: f for f in measured(scaled, groups.tables([s.column for s in scaled]))} if scaled else {}
    )
    return [found.get(feature.column, feature) for feature in features]


def id_map(entry: CategoricalColumns, groups: RowGroups, where: str) -> IdMap:
    """Make the map from a column's values to ids; the largest id is scanned for if need be."""
    name = entry.columns
    kind = groups.schema.field(name).type
    kind = kind.value_type if is_bag(kind) else kind
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    text = kind_of_values(groups.schema, name) == "text"
    if not text and not pa.types.is_integer(kind) and not pa.types.is_boolean(kind):
        raise ConfigError(f"{where}: categorical {name!r}: expected integers or text, got {kind}")
    if entry.buckets is not None:
        return Hashed(entry.buckets)
    if entry.vocabulary is not None:
        return read_vocabulary(entry.vocabulary, text=text)
    if text:
        raise ConfigError(f"{where}: categorical {name!r} is text; give buckets or a vocabulary")
    if entry.rows is not None:
        return Known(entry.rows)
    largest = groups.largest(name)
    if largest is None:
        scanned = (flat(table[name]).cast(pa.int64(), safe=False) for table in groups.tables([name]))
        largest = max((int(np.max(a.fill_null(-1).to_numpy(), initial=-1)) for a in scanned), default=-1)
    return Known(largest + 1)
