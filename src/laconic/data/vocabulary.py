"""From values to ids: hashing, and vocabularies that keep what is frequent.

An integer is hashed by ``mix64``, and text by the first 8 bytes (little-endian) of its BLAKE2b
digest. The id is the hash modulo the number of buckets. Golden numbers in the tests keep it stable.

A vocabulary lists values, most frequent first, so ids are ranked by frequency (0 = most frequent).
All maps send null and unknown values to the last row of the table, which no known value has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from laconic.data.hashing import Texts, hash_texts, mix64
from laconic.data.raw_source import ValueIndex, Values
from laconic.errors import ConfigError, FormatError

__all__ = ["Counter", "Hashed", "IdMap", "Known", "Vocabulary", "read_vocabulary"]

Ids = NDArray[Any]
"""As int64, or as int32 where that is what a column has."""


class IdMap(Protocol):
    """Turns values into ids."""

    rows: int
    """Rows of the table, the one for unknown values, its last, included."""

    def __call__(self, values: Any) -> Ids:
        """Find the id of every value of a pyarrow array, nulls included."""
        ...


class Known:
    """Integers that are ids already."""

    def __init__(self, known: int) -> None:
        self.rows = known + 1
        self._unknown = np.uint64(known)

    def __call__(self, values: Any) -> Ids:
        """Send negative and too large ones to the last row."""
        if pa.types.is_int32(values.type) and not values.null_count and self._unknown < 1 << 31:
            few: NDArray[np.uint32] = values.to_numpy().view(np.uint32)  # as below
            if int(few.max(initial=0)) > self._unknown:
                few = np.minimum(few, np.uint32(self._unknown))
            return few.view(np.int32)
        words = _integers(values, fill=-1).view(np.uint64)  # negative ones are the largest
        return np.minimum(words, self._unknown).view(np.int64)


class Hashed:
    """Integers or text, hashed into buckets."""

    def __init__(self, buckets: int) -> None:
        self.rows = buckets + 1

    def __call__(self, values: Any) -> Ids:
        """Hash all but null, which goes to the last row."""
        buckets = self.rows - 1
        ids = (_hash64(values) % np.uint64(buckets)).view(np.int64)
        if values.null_count:
            ids[values.is_null().to_numpy(zero_copy_only=False)] = buckets
        return ids


class Vocabulary:
    """Integers or text, looked up in a list of distinct values."""

    def __init__(self, values: Any) -> None:
        """``values``: pyarrow array without nulls or duplicates; the first is id 0."""
        self.arrow = values
        self.rows = len(values) + 1
        self._is_text = _is_text(values.type)
        self._index = ValueIndex(_plain(values))

    def __call__(self, values: Any) -> Ids:
        """Look values up; null and unlisted ones go to the last row."""
        if self._is_text != _is_text(values.type):
            values = values.cast(pa.string() if self._is_text else pa.int64())
        if self._is_text:  # frequent texts are hashed once
            encoded = values.dictionary_encode()
            ids = np.append(self._index.find(_plain(encoded.dictionary)), self.rows - 1)
            return ids[_integers(encoded.indices, fill=-1)]
        ids = self._index.find(_plain(values))
        if values.null_count:
            ids[values.is_null().to_numpy(zero_copy_only=False)] = self.rows - 1
        return ids

    @property
    def values(self) -> Values:
        """The list, without pyarrow."""
        return self._index.values


class Counter:
    """How often each value occurs. Memory: the distinct values seen."""

    def __init__(self) -> None:
        self._tables: list[Any] = []
        self._pending = 0

    def add(self, values: Any) -> None:
        """Count the values of a pyarrow array; nulls do not count."""
        counted = pc.value_counts(values.drop_null())
        self._tables.append(pa.table({"value": counted.field(0), "count": counted.field(1)}))
        self._pending += len(counted)
        if self._pending > 2 * self._tables[0].num_rows + (1 << 20):
            self._merge()

    def most_frequent(self, min_count: int) -> Any:
        """Return values that occur ``min_count`` times or more, and counts; most frequent first."""
        if not self._tables:
            return pa.table({"value": pa.array([], pa.int64()), "count": pa.array([], pa.int64())})
        self._merge()
        kept = self._tables[0].filter(pc.field("count") >= min_count)
        return kept.sort_by([("count", "descending"), ("value", "ascending")])

    def _merge(self) -> None:
        merged = pa.concat_tables(self._tables).group_by("value").aggregate([("count", "sum")])
        self._tables = [merged.select(["value", "count_sum"]).rename_columns(["value", "count"])]
        self._pending = 0


def read_vocabulary(path: Path, *, text: bool) -> Vocabulary:
    """Read known values from Parquet with a column ``value``, or from text with one per line."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such vocabulary file")
    if path.suffix == ".parquet":
        values = _read_values(path)
    else:
        values = pa.array(path.read_text(encoding="utf-8").splitlines(), pa.string())
    try:
        unsigned = pa.types.is_unsigned_integer(values.type)  # as two's complement, like everywhere
        values = values.cast(pa.string() if text else pa.int64(), safe=not unsigned)
    except pa.ArrowInvalid as error:
        raise ConfigError(f"{path}: expected integers as in the column, got {error}") from None
    distinct = pc.count_distinct(values, mode="all").as_py()
    if values.null_count or distinct != len(values):
        raise ConfigError(f"{path}: expected distinct values, got {len(values) - distinct} repeated ones")
    return Vocabulary(values)


def _read_values(path: Path) -> Any:
    try:
        table = pq.read_table(path, columns=["value"], page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise FormatError(
            f"{path}: the vocabulary cannot be read: {str(error).partition(chr(10))[0]}"
        ) from error
    return table["value"].combine_chunks()


def _hash64(values: Any) -> NDArray[np.uint64]:
    if not _is_text(values.type):
        return mix64(_integers(values, fill=0))
    encoded = values.dictionary_encode()
    hashes = hash_texts([text.encode() for text in encoded.dictionary.to_pylist()])
    return np.append(hashes, np.uint64(0))[_integers(encoded.indices, fill=-1)]


def _plain(values: Any) -> Values:
    return Texts.of_arrow(values) if _is_text(values.type) else _integers(values, fill=0)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _integers(values: Any, *, fill: int) -> Ids:
    plain = values.cast(pa.int64(), safe=False)
    if plain.null_count:
        plain = plain.fill_null(fill)
    numbers: Ids = plain.to_numpy(zero_copy_only=False)
    return numbers
