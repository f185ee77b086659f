"""The prepared folder, which ``laconic prepare`` writes whole or not at all. ::

DIR/
|- schema.toml               columns, rows of each table, the split: a parquet source reads it;
|                            and the transforms of raw values: a served model needs them
|- summary.json              samples, lookups of unknown values, replaced values by column
|- part-00000.parquet ...    row groups of 65,536 samples: label uint8, dense float32,
|                            ids int32 (or int64)
`- vocabulary/NAME.parquet   value and count of each counted column, in the order of ids;
                             value alone of a column whose vocabulary was given
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from laconic.config import Settings
from laconic.data.columns import PREPARED, PreparedNumbers, PreparedValues, RandomSplit, TimeSplit
from laconic.data.source import Schema
from laconic.errors import ConfigError
from laconic.files import whole_folder

__all__ = ["ROW_GROUP", "Parts", "new_folder", "schema_toml"]

ROW_GROUP = 65536
_GROUPS_OF_A_PART = 256


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Open a folder to write into, which becomes ``out`` at the end, or vanishes on any error."""
    if out.exists():
        raise ConfigError(f"{out}: exists already; remove it or choose another folder")
    if not out.parent.is_dir():
        raise ConfigError(f"{out}: no folder {str(out.parent)!r} to write into; make it first")
    try:
        with whole_folder(out) as partial:
            yield partial
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            what = "no room left on the disk; nothing was kept; free some or choose another folder"
            raise OSError(error.errno, what, str(out)) from error
        raise


class Parts:
    """Writes tables of any length as row groups of equal length, a file for every 256 of them."""

    def __init__(self, folder: Path, schema: Any) -> None:
        self._folder = folder
        self._schema = schema
        self._held: list[Any] = []
        self._held_rows = 0
        self._groups = 0
        self._writer: Any = None
        self.rows = 0

    def write(self, table: Any) -> None:
        """Take a table; full row groups are written at once."""
        self.rows += table.num_rows
        self._held.append(table)
        self._held_rows += table.num_rows
        if self._held_rows >= ROW_GROUP:
            whole = pa.concat_tables(self._held)
            full = self._held_rows // ROW_GROUP * ROW_GROUP
            for begin in range(0, full, ROW_GROUP):
                self._write_group(whole.slice(begin, ROW_GROUP))
            self._held, self._held_rows = [whole.slice(full)], self._held_rows - full

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            if kind is None and (self._held_rows or not self._groups):
                self._write_group(pa.concat_tables(self._held) if self._held else self._schema.empty_table())
        finally:
            if self._writer is not None:
                self._writer.close()

    def _write_group(self, table: Any) -> None:
        if self._groups % _GROUPS_OF_A_PART == 0:
            if self._writer is not None:
                self._writer.close()
            path = self._folder / f"part-{self._groups // _GROUPS_OF_A_PART:05d}.parquet"
            self._writer = pq.ParquetWriter(path, self._schema, compression="zstd", write_page_checksum=True)
        self._writer.write_table(table, row_group_size=ROW_GROUP)
        self._groups += 1


def schema_toml(
    label: str,
    schema: Schema,
    split: RandomSplit | TimeSplit,
    numbers: Sequence[PreparedNumbers],
    values: Sequence[PreparedValues],
    *,
    raw: bool,
) -> str:
    """Describe a prepared folder, whose values are ids and whose dense features are transformed.

    ``numbers`` and ``values`` record the transforms of its input, which was ``raw`` or not.
    """
    lines = [f"label = {json.dumps(label)}", *([] if raw else ["raw = false"]), ""]
    for name, dense in zip(schema.dense, numbers, strict=True):
        lines += ["[[dense]]", f"columns = {json.dumps(name)}", f"prepared = {_inline(dense)}", ""]
    for feature, ids in zip(schema.categorical, values, strict=True):
        rows = f"rows = {feature.rows - 1}{PREPARED}"
        lines += ["[[categorical]]", f"columns = {json.dumps(feature.name)}", rows]
        lines += [f"prepared = {_inline(ids)}", ""]
    settings = split.model_dump(exclude_none=True)
    lines += ["[split]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
    return "\n".join(lines) + "\n"


def _inline(settings: Settings) -> str:
    tree = settings.model_dump(mode="json", exclude_none=True)
    return f"{{ {', '.join(f'{name} = {json.dumps(value)}' for name, value in tree.items())} }}"
