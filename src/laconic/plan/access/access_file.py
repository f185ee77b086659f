"""The file of access statistics: Parquet that anything can read, with JSON in its metadata.

``docs/guides/profile.md`` has the format. Files may come from elsewhere, so all that they claim is
checked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from laconic.errors import ConfigError, FormatError
from laconic.files import whole_file
from laconic.plan.access.access import Access, Count, DistinctRows, Drift, Some, TableAccess, Zipf

__all__ = ["KEY", "read_access", "write_access"]

KEY = b"laconic.access"
_COLUMNS = ("table", "id", "count", "missed")
_AS_THEY_ARE = ("name", "rows", "lookups", "sampled", "distinct", "bags", "zipf", "drift")

Ints = NDArray[np.int64]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Table(_Record):
    name: str
    rows: Some
    lookups: Count
    head: Count
    tail: tuple[tuple[Some, Some], ...]
    sampled: Count
    distinct: DistinctRows
    bags: tuple[tuple[Count, Some], ...]
    zipf: Zipf | None
    drift: Drift | None


class _Header(_Record):
    version: Literal[1]
    source: str
    samples: Count
    tables: tuple[_Table, ...]


def write_access(access: Access, path: str | Path) -> None:
    """Write a file, whole or not at all; one that is there is replaced."""
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency
    import pyarrow.parquet as pq  # noqa: PLC0415

    path = Path(path)
    if not path.parent.is_dir():
        raise ConfigError(f"access: no folder {str(path.parent)!r} to write into; make it first")
    tables = access.tables
    schema = pa.schema(
        [
            pa.field("table", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            *(pa.field(name, pa.int64(), nullable=False) for name in _COLUMNS[1:]),
        ],
        metadata={KEY: _header(access).model_dump_json().encode()},
    )
    number = np.repeat(np.arange(len(tables), dtype=np.int32), [table.ids_H.size for table in tables])
    names = pa.DictionaryArray.from_arrays(number, pa.array([table.name for table in tables], pa.string()))
    columns = (
        np.concatenate([getattr(table, name) for table in tables]) if tables else np.empty(0, np.int64)
        for name in ("ids_H", "counts_H", "missed_H")
    )
    whole = pa.Table.from_arrays([names, *map(pa.array, columns)], schema=schema)
    with whole_file(path) as partial:
        pq.write_table(whole, partial, compression="zstd", use_dictionary=["table"])


def _header(access: Access) -> _Header:
    return _Header(
        version=1,
        source=access.source,
        samples=access.samples,
        tables=tuple(
            _Table(
                head=table.ids_H.size,
                tail=tuple(zip(table.tail_rows_R.tolist(), table.tail_lookups_R.tolist(), strict=True)),
                **{field: getattr(table, field) for field in _AS_THEY_ARE},
            )
            for table in access.tables
        ),
    )


def read_access(path: str | Path) -> Access:
    """Read a file of ``laconic profile``, or raise FormatError that says what is wrong with it."""
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency
    import pyarrow.parquet as pq  # noqa: PLC0415

    if not Path(path).is_file():
        raise ConfigError(f"{path}: no such file; laconic profile writes it")
    try:
        with pq.ParquetFile(path) as file:
            header = _read_header(file.schema_arrow.metadata or {})
            kinds = {field.name: field.type for field in file.schema_arrow}
            for name, kind in zip(_COLUMNS, (pa.string(), *[pa.int64()] * 3), strict=True):
                got = kinds.get(name, "none")
                got = got.value_type if isinstance(got, pa.DictionaryType) else got
                if got != kind:
                    raise FormatError(f"column {name!r}: expected {kind}, got {got}")
            expected = sum(table.head for table in header.tables)
            if file.metadata.num_rows != expected:
                raise FormatError(
                    f"expected {expected} rows, the heads of all tables, got {file.metadata.num_rows}"
                )
            whole = file.read(columns=list(_COLUMNS))
        return Access(header.source, header.samples, _tables(header, whole))
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{path}: not a Parquet file: {str(error).partition(chr(10))[0]}") from error


def _read_header(metadata: dict[bytes, bytes]) -> _Header:
    if KEY not in metadata:
        raise FormatError(f"no {KEY.decode()!r} in its metadata; expected a file of laconic profile")
    try:
        header = _Header.model_validate_json(metadata[KEY])
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, (KEY.decode(), *problem["loc"])))
        got = repr(problem["input"])
        raise FormatError(
            f"{place}: {problem['msg'].replace('Input should be', 'expected', 1)}, "
            f"got {got if len(got) <= 80 else got[:77] + '...'}"
        ) from None
    names = [table.name for table in header.tables]
    if len(set(names)) < len(names):
        raise FormatError(f"expected tables with different names, got {', '.join(map(repr, names))}")
    return header


def _tables(header: _Header, whole: Any) -> tuple[TableAccess, ...]:
    for name in _COLUMNS:
        if whole[name].null_count:
            raise FormatError(f"column {name!r}: expected no nulls, got {whole[name].null_count}")
    names = whole["table"].cast("string")
    columns = [whole[name].to_numpy() for name in _COLUMNS[1:]]
    tables = []
    begin = 0
    for table in header.tables:
        end = begin + table.head
        others = set(names.slice(begin, table.head).unique().to_pylist()) - {table.name}
        if others:
            raise FormatError(
                f"expected table {table.name!r} in rows {begin} to {end - 1}, got {others.pop()!r}"
            )
        tables.append(_table(table, header.samples, *(column[begin:end] for column in columns)))
        begin = end
    return tuple(tables)


def _table(table: _Table, samples: int, ids_H: Ints, counts_H: Ints, missed_H: Ints) -> TableAccess:
    _check_head(table, ids_H, counts_H, missed_H)
    _check_sums(table, samples, sum(counts_H.tolist()))
    tail = np.array(table.tail, dtype=np.int64).reshape(-1, 2)
    return TableAccess(
        samples=samples,
        ids_H=ids_H,
        counts_H=counts_H,
        missed_H=missed_H,
        tail_rows_R=tail[:, 0].copy(),
        tail_lookups_R=tail[:, 1].copy(),
        **{field: getattr(table, field) for field in _AS_THEY_ARE},
    )


def _check_head(table: _Table, ids_H: Ints, counts_H: Ints, missed_H: Ints) -> None:
    where = f"table {table.name!r}"
    if not ids_H.size:
        return
    if ids_H.min() < 0 or ids_H.max() >= table.rows:
        raise FormatError(f"{where}: expected ids in 0..{table.rows - 1}, got {ids_H.min()} to {ids_H.max()}")
    if np.unique(ids_H).size < ids_H.size:
        raise FormatError(
            f"{where}: expected every id once, got {ids_H.size - np.unique(ids_H).size} repeated"
        )
    if counts_H[-1] < 1 or (np.diff(counts_H) > 0).any():
        raise FormatError(
            f"{where}: expected counts from 1 on that never rise, got {counts_H[-1]} at the end"
        )
    if missed_H.min() < 0:
        raise FormatError(f"{where}: expected missed lookups from 0 on, got {missed_H.min()}")


def _check_sums(table: _Table, samples: int, head_lookups: int) -> None:
    """Python's integers do not overflow, whatever a file says."""
    where = f"table {table.name!r}"
    tail_rows, tail_lookups = (sum(run[k] for run in table.tail) for k in (0, 1))
    short = [run for run in table.tail if run[1] < run[0]]
    if short:
        raise FormatError(f"{where}: expected at least one lookup a row in the tail, got {short[0]}")
    if head_lookups + tail_lookups != table.lookups:
        raise FormatError(
            f"{where}: expected {table.lookups} lookups, got {head_lookups} in the head and {tail_lookups} in the tail"
        )
    seen = table.head + tail_rows
    if not seen == table.distinct.rows <= table.rows:
        raise FormatError(
            f"{where}: expected {table.distinct.rows} rows of {table.rows} in head and tail, got {seen}"
        )
    found = table.distinct
    if not found.lower <= found.rows <= found.upper <= table.rows:
        got = f"rows={found.rows} lower={found.lower} upper={found.upper}"
        raise FormatError(f"{where}: expected bounds around the number of rows, got {got}")
    bagged = sum(count for _, count in table.bags)
    if bagged != samples:
        raise FormatError(f"{where}: expected bags of {samples} samples, got {bagged}")
