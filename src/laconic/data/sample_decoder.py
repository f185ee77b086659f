"""Decodes columns of a file: checks labels, transforms dense features and maps values to ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laconic.data.dense import Dense
from laconic.data.sample_block import BagColumn, SampleBlock
from laconic.data.source import Categorical, Schema
from laconic.data.vocabulary import IdMap
from laconic.errors import FormatError

__all__ = ["SampleDecoder", "flat", "is_bag", "whole"]


Ints = NDArray[np.int64]


def is_bag(kind: Any) -> bool:
    """Whether a column's type holds any number of values for a sample."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def whole(values: Any) -> Any:
    """Return a column as one array, in place where it is one already."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def flat(values: Any) -> Any:
    """Return a column as one array without dictionaries; lists become their elements."""
    array = whole(values)
    if is_bag(array.type):
        array = pc.list_flatten(array)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


class SampleDecoder:
    """Decodes tables of one set of columns; ``maps`` has an ``IdMap`` per categorical column."""

    def __init__(self, label: str, dense: Sequence[Dense], maps: dict[str, IdMap], arrow_schema: Any) -> None:
        self._label = label
        self.dense = tuple(dense)
        self._maps = maps
        self._bag = [is_bag(arrow_schema.field(name).type) for name in maps]
        self.schema = Schema(
            tuple(feature.column for feature in dense),
            tuple(
                Categorical(name, ids.rows, bag)
                for (name, ids), bag in zip(maps.items(), self._bag, strict=True)
            ),
        )
        self._id_type = np.int32 if max(self.schema.rows) < 1 << 31 else np.int64

    @property
    def columns(self) -> list[str]:
        """Names of the columns that ``decode`` reads."""
        return [self._label, *(feature.column for feature in self.dense), *self._maps]

    def empty(self) -> SampleBlock:
        """Return a block without samples."""
        one_hot = len(self._bag) - sum(self._bag)
        nothing = BagColumn(np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64))
        return SampleBlock(
            np.empty(0, dtype=np.float32),
            np.empty((0, len(self.dense)), dtype=np.float32),
            np.empty((one_hot, 0), dtype=self._id_type),
            {t: nothing for t, bag in enumerate(self._bag) if bag},
        )

    def decode(self, table: Any, rows: Ints | None = None) -> SampleBlock:
        """Decode a table into a block of its own; ``rows``: which ones, in that order."""
        block = self.empty().like(table.num_rows if rows is None else len(rows))
        block.bags.update(self.decode_into(block, table, rows))
        return block

    def decode_into(self, block: SampleBlock, table: Any, rows: Ints | None = None) -> dict[int, BagColumn]:
        """Decode a table, or rows of it, into the first samples of a block; return its bags."""
        _copy(_labels(whole(table[self._label]), self._label), rows, block.label_N)
        dense_NF = np.empty((table.num_rows, len(self.dense)), np.float32)
        for f, feature in enumerate(self.dense):
            dense_NF[:, f] = feature(whole(table[feature.column]))
        _copy(dense_NF, rows, block.dense_NF)  # all features of a sample at once
        bags: dict[int, BagColumn] = {}
        one_hot = iter(block.ids_KN)
        for t, (name, to_ids) in enumerate(self._maps.items()):
            ids = to_ids(flat(table[name]))
            if self._bag[t]:
                column = BagColumn(ids.astype(np.int64, copy=False), _bag_offsets(table[name]))
                bags[t] = column if rows is None else column.take(rows)
            else:
                _copy(ids, rows, next(one_hot))
        return bags


def _copy(values_N: NDArray[Any], rows: Ints | None, out_N: NDArray[Any]) -> None:
    """Copy values of samples, or of some in an order, to the front of an array."""
    if rows is None:
        out_N[: len(values_N)] = values_N
    else:  # "clip": numpy would buffer all of it, to leave ``out`` as it was after an error
        values_N = values_N.astype(out_N.dtype, copy=False)
        np.take(values_N, rows, axis=0, out=out_N[: len(rows)], mode="clip")


def _labels(values: Any, name: str) -> NDArray[np.float32]:
    if values.null_count:
        raise FormatError(f"label {name!r}: expected 0 or 1, got {values.null_count} nulls")
    label_N: NDArray[np.float32] = values.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    wrong = (label_N != 0) & (label_N != 1)
    if wrong.any():
        raise FormatError(f"label {name!r}: expected 0 or 1, got {float(label_N[wrong][0])!r}")
    return label_N


def _bag_offsets(values: Any) -> NDArray[np.int64]:
    lengths = pc.list_value_length(whole(values)).fill_null(0).cast(pa.int64())
    return np.concatenate([[0], np.cumsum(lengths.to_numpy(zero_copy_only=False))]).astype(np.int64)
