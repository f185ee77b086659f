"""Decodes columns of a file: checks labels, transforms dense features and maps values to ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

__all__ = ["SampleDecoder", "flat", "is_bag"]


_PIECE = 16384  # rows whose decoded columns stay in the cache while they are woven into rows


def is_bag(kind: Any) -> bool:
    """Whether a column's type holds any number of values for a sample."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def flat(values: Any) -> Any:
    """Return a column as one array without dictionaries; lists become their elements."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
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

    def decode(self, tables: Iterable[Any], rows: int) -> SampleBlock:
        """Decode tables, which have ``rows`` rows together, into one block."""
        one_hot = len(self._bag) - sum(self._bag)
        block = SampleBlock(
            np.empty(rows, dtype=np.float32),
            np.empty((rows, len(self.dense)), dtype=np.float32),
            np.empty((rows, one_hot), dtype=self._id_type),
            {},
        )
        bags: dict[int, list[BagColumn]] = {t: [] for t, bag in enumerate(self._bag) if bag}
        begin = 0
        for table in tables:
            for piece in range(0, table.num_rows, _PIECE):
                self._decode_into(block, begin + piece, table.slice(piece, _PIECE), bags)
            begin += table.num_rows
        assert begin == rows
        nothing = BagColumn(np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64))
        block.bags.update({t: BagColumn.join([nothing, *parts]) for t, parts in bags.items()})
        return block

    def _decode_into(
        self, block: SampleBlock, begin: int, table: Any, bags: dict[int, list[BagColumn]]
    ) -> None:
        end = begin + table.num_rows
        block.label_N[begin:end] = _labels(table[self._label].combine_chunks(), self._label)
        for f, feature in enumerate(self.dense):
            block.dense_NF[begin:end, f] = feature(table[feature.column].combine_chunks())
        k = 0
        for t, (name, ids) in enumerate(self._maps.items()):
            values = flat(table[name])
            if self._bag[t]:
                bags[t].append(BagColumn(ids(values), _bag_offsets(table[name])))
            else:
                block.ids_NK[begin:end, k] = ids(values)
                k += 1


def _labels(values: Any, name: str) -> NDArray[np.float32]:
    if values.null_count:
        raise FormatError(f"label {name!r}: expected 0 or 1, got {values.null_count} nulls")
    label_N: NDArray[np.float32] = values.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    wrong = (label_N != 0) & (label_N != 1)
    if wrong.any():
        raise FormatError(f"label {name!r}: expected 0 or 1, got {float(label_N[wrong][0])!r}")
    return label_N


def _bag_offsets(values: Any) -> NDArray[np.int64]:
    lengths = pc.list_value_length(values.combine_chunks()).fill_null(0).cast(pa.int64())
    return np.concatenate([[0], np.cumsum(lengths.to_numpy(zero_copy_only=False))]).astype(np.int64)
