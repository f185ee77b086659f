"""Turns raw logs into a prepared folder: counts values, then maps them to ids, in two passes.

A categorical column gets a vocabulary of the values that occur at least ``min_count`` times, most
frequent first, or ``buckets`` rows to hash into. A column of Parquet input whose settings name
rows, buckets or a vocabulary keeps to these. All other values go to the last row of the table. The
order of rows is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from laconic.data.columns import (
    CategoricalColumns,
    ColumnSettings,
    PreparedNumbers,
    PreparedValues,
    RandomSplit,
    TimeSplit,
    load_columns,
)
from laconic.data.criteo import COLUMNS, CriteoFile
from laconic.data.dense import Dense
from laconic.data.odd_counts import OddCounts, total_counts
from laconic.data.odd_values import OddValues
from laconic.data.parquet import dense_features, id_map
from laconic.data.prepared import Parts, new_folder, schema_toml
from laconic.data.raw_values import kind_of_values
from laconic.data.row_groups import RowGroups
from laconic.data.sample_block import SampleBlock
from laconic.data.sample_decoder import SampleDecoder, flat
from laconic.data.source import Schema
from laconic.data.vocabulary import Counter, Hashed, IdMap, Vocabulary
from laconic.errors import ConfigError

__all__ = ["Prepared", "Progress", "RawLogs", "prepare"]

Progress = Callable[[str, int, int], None]
"""Called with the pass ("count" or "write"), what is done of it, and its total (bytes or rows)."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared folder, and what its input had."""

    folder: Path
    rows: int
    """Number of samples."""
    skipped: int
    """Number of bad lines that were left out."""
    schema: Schema
    unknown: tuple[int, ...]
    """Number of lookups of each table that went to its last row."""
    odd: tuple[OddCounts, ...]
    """Columns with values that were replaced."""

    def facts(self) -> dict[str, Any]:
        """Return the same in plain values, as ``summary.json`` has it."""
        tables = [
            {"name": feature.name, "rows": feature.rows, "bag": feature.bag, "unknown": unknown}
            for feature, unknown in zip(self.schema.categorical, self.unknown, strict=True)
        ]
        return {
            "samples": self.rows,
            "skipped_lines": self.skipped,
            "dense": list(self.schema.dense),
            "tables": tables,
            "odd_values": [asdict(column) for column in self.odd],
        }


@dataclass(frozen=True, slots=True)
class RawLogs:
    """The input of ``prepare``."""

    paths: Sequence[str | Path]
    """Files, or folders of Parquet files."""

    form: str = "criteo"
    """``criteo`` or ``parquet``."""

    columns: str | Path | None = None
    """TOML file that describes the columns of Parquet files."""

    skip_bad_lines: bool = False
    """Whether bad lines of Criteo's format are left out and counted, instead of refused."""

    def open(self) -> _Input:
        """Open the files; ``ConfigError`` if form, paths and columns do not go together."""
        if not self.paths:
            raise ConfigError("prepare: expected at least one input, got none")
        if self.form == "criteo":
            if self.columns is not None:
                raise ConfigError(
                    f"prepare: Criteo's columns are known; got a description {str(self.columns)!r}"
                )
            return _Criteo(
                [CriteoFile(Path(path), skip_bad_lines=self.skip_bad_lines) for path in self.paths]
            )
        if self.form == "parquet":
            if self.columns is None:
                raise ConfigError(
                    "prepare: Parquet needs a description of its columns (a TOML file), got none"
                )
            return _Parquet(RowGroups(self.paths), load_columns(Path(self.columns)))
        raise ConfigError(f"prepare: no format {self.form!r} (known: criteo, parquet)")

    def __str__(self) -> str:
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{str(self.paths[0])!r}{more}"


class _Input(Protocol):
    columns: ColumnSettings
    schema: Any
    total: int

    def tables(self) -> Iterator[tuple[Any, int]]: ...
    def dense(self) -> list[Dense]: ...
    def id_map(self, entry: CategoricalColumns) -> IdMap | None: ...
    def kind(self, name: str) -> Literal["integer", "text", "hexadecimal"]: ...
    def skipped(self) -> int: ...


def prepare(
    logs: RawLogs,
    out: str | Path,
    *,
    min_count: int | None = None,
    buckets: int | None = None,
    split: RandomSplit | TimeSplit | None = None,
    progress: Progress = lambda phase, done, total: None,
) -> Prepared:
    """Write a prepared folder; without ``min_count`` and ``buckets`` every value is known."""
    if min_count is not None and buckets is not None:
        raise ConfigError(f"prepare: give min_count or buckets, got both ({min_count} and {buckets})")
    for name, value in (("min_count", min_count), ("buckets", buckets)):
        if value is not None and value < 1:
            raise ConfigError(f"prepare: {name} must be at least 1, got {value}")
    source = logs.open()
    with new_folder(Path(out)) as folder:
        maps = _maps(source, min_count or 1, buckets, folder, progress)
        decoder = SampleDecoder(source.columns.label, source.dense(), maps, source.schema)
        split = split or source.columns.split
        rows, unknown, odd = _write(source, decoder, split, folder, progress)
        if not rows:
            skipped = f", {source.skipped():,} bad lines left out" if source.skipped() else ""
            raise ConfigError(f"prepare: expected samples, got none in {logs}{skipped}; check the input")
        numbers = [PreparedNumbers(log1p=d.log1p, mean=d.mean, deviation=d.deviation) for d in decoder.dense]
        values = [_prepared_values(name, ids, source) for name, ids in maps.items()]
        text = schema_toml(
            source.columns.label, decoder.schema, split, numbers, values, raw=_is_raw(source.columns)
        )
        (folder / "schema.toml").write_text(text, encoding="utf-8")
        done = Prepared(Path(out), rows, source.skipped(), decoder.schema, unknown, odd)
        (folder / "summary.json").write_text(json.dumps(done.facts(), indent=2) + "\n", encoding="utf-8")
    return done


def _is_raw(columns: ColumnSettings) -> bool:
    """Whether no column was prepared before: two transforms cannot be written as one."""
    numbers = all(entry.prepared is None for entry in columns.dense)
    return columns.raw and numbers and all(entry.prepared is None for entry in columns.categorical)


class _Criteo:
    def __init__(self, files: list[CriteoFile]) -> None:
        self._files = files
        self.columns = COLUMNS
        self.schema = CriteoFile.schema
        self.total = sum(file.size for file in files)

    def tables(self) -> Iterator[tuple[Any, int]]:
        before = 0
        for file in self._files:
            for table, done in file.tables():
                yield table, before + done
            before += file.size

    def dense(self) -> list[Dense]:
        return [Dense(entry.columns, log1p=True) for entry in self.columns.dense]

    def id_map(self, entry: CategoricalColumns) -> IdMap | None:
        return None

    def kind(self, name: str) -> Literal["integer", "text", "hexadecimal"]:
        return "hexadecimal"

    def skipped(self) -> int:
        return sum(file.skipped for file in self._files)


class _Parquet:
    def __init__(self, groups: RowGroups, columns: ColumnSettings) -> None:
        self._groups = groups
        self.columns = columns.expanded(groups.schema.names, where=str(groups.files[0]))
        time = getattr(self.columns.split, "column", None)
        entries = (*self.columns.dense, *self.columns.categorical)
        self._names = [self.columns.label, *(e.columns for e in entries), *([time] if time else [])]
        groups.check_columns(self._names)
        self.schema = groups.schema
        self.total = sum(groups.rows)

    def tables(self) -> Iterator[tuple[Any, int]]:
        done = 0
        for table in self._groups.tables(self._names):
            done += table.num_rows
            yield table, done

    def dense(self) -> list[Dense]:
        return dense_features(self.columns.dense, self._groups)

    def id_map(self, entry: CategoricalColumns) -> IdMap | None:
        stated = (entry.rows, entry.buckets, entry.vocabulary) != (None, None, None)
        return id_map(entry, self._groups, str(self._groups.files[0])) if stated else None

    def kind(self, name: str) -> Literal["integer", "text", "hexadecimal"]:
        return kind_of_values(self.schema, name)

    def skipped(self) -> int:
        return 0


def _maps(
    source: _Input, min_count: int, buckets: int | None, folder: Path, progress: Progress
) -> dict[str, IdMap]:
    stated = {entry.columns: source.id_map(entry) for entry in source.columns.categorical}
    counters = {name: Counter() for name, ids in stated.items() if ids is None and buckets is None}
    if counters:
        progress("count", 0, source.total)
        for table, done in source.tables():
            for name, counter in counters.items():
                counter.add(flat(table[name]))
            progress("count", done, source.total)
    maps: dict[str, IdMap] = {}
    for name, ids in stated.items():
        if name in counters:
            kept = counters.pop(name).most_frequent(min_count)
            _write_vocabulary(kept, name, folder)
            maps[name] = Vocabulary(kept["value"].combine_chunks())
        else:
            maps[name] = ids or Hashed(buckets or 1)
        if isinstance(ids, Vocabulary):
            _write_vocabulary(pa.table({"value": ids.arrow}), name, folder)
    return maps


def _vocabulary_file(name: str) -> Path:
    return Path("vocabulary") / f"{quote(name, safe=' ')}.parquet"  # a name may have a slash


def _write_vocabulary(table: Any, name: str, folder: Path) -> None:
    file = folder / _vocabulary_file(name)
    file.parent.mkdir(exist_ok=True)
    pq.write_table(table, file, compression="zstd", write_page_checksum=True)


def _prepared_values(name: str, ids: IdMap, source: _Input) -> PreparedValues:
    """Record how raw values became ids, for whoever serves a model of these ids."""
    return PreparedValues(
        values=source.kind(name),
        buckets=ids.rows - 1 if isinstance(ids, Hashed) else None,
        vocabulary=_vocabulary_file(name) if isinstance(ids, Vocabulary) else None,
    )


def _write(
    source: _Input, decoder: SampleDecoder, split: RandomSplit | TimeSplit, folder: Path, progress: Progress
) -> tuple[int, tuple[int, ...], tuple[OddCounts, ...]]:
    time = split.column if isinstance(split, TimeSplit) else None
    if time is not None and time not in source.schema.names:
        raise ConfigError(
            f"prepare: no column {time!r} to split by (known: {', '.join(source.schema.names)})"
        )
    unknown = np.zeros(decoder.schema.tables, dtype=np.int64)
    odd = OddValues(decoder.dense, [feature.name for feature in decoder.schema.categorical])
    last_T = np.array(decoder.schema.rows) - 1
    schema = _output_schema(source, decoder, time)
    progress("write", 0, source.total)
    with Parts(folder, schema) as parts:
        for table, done in source.tables():
            block = decoder.decode(table)
            odd.add(parts.rows, table)
            columns = _columns(block, decoder.schema)
            unknown += [
                int(np.count_nonzero(ids == last)) for (ids, _), last in zip(columns, last_T, strict=True)
            ]
            times = [table[time].combine_chunks()] if time else []
            parts.write(_table(block, columns, times, schema))
            progress("write", done, source.total)
    return parts.rows, tuple(int(count) for count in unknown), total_counts(odd.by_group())


def _output_schema(source: _Input, decoder: SampleDecoder, time: str | None) -> Any:
    fields = [(source.columns.label, pa.uint8())]
    fields += [(name, pa.float32()) for name in decoder.schema.dense]
    for feature in decoder.schema.categorical:
        kind = pa.int32() if feature.rows < 1 << 31 else pa.int64()
        fields.append((feature.name, pa.list_(kind) if feature.bag else kind))
    if time is not None:
        fields.append((time, source.schema.field(time).type))
    return pa.schema(fields)


def _columns(block: SampleBlock, schema: Schema) -> list[tuple[Any, Any]]:
    """Return the ids of every table and, for bags, their offsets."""
    one_hot = iter(block.ids_KN)
    return [
        (block.bags[t].ids, block.bags[t].offsets) if feature.bag else (next(one_hot), None)
        for t, feature in enumerate(schema.categorical)
    ]


def _table(block: SampleBlock, columns: list[tuple[Any, Any]], times: list[Any], schema: Any) -> Any:
    arrays = [pa.array(block.label_N).cast(pa.uint8()), *map(pa.array, block.dense_NF.T)]
    for ids, offsets in columns:
        kind = schema.field(len(arrays)).type
        if offsets is None:
            arrays.append(pa.array(ids).cast(kind))
        else:
            arrays.append(
                pa.ListArray.from_arrays(
                    pa.array(offsets).cast(pa.int32()), pa.array(ids).cast(kind.value_type)
                )
            )
    return pa.table([*arrays, *times], schema=schema)
