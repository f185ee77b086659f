"""Samples from Parquet files: every rank reads its share, shuffled with bounded memory.

An epoch is divided into streams (``streams``), of which each rank reads its own
(``stream_reader``): ``1 / N`` of the row groups on ``N`` ranks, and at most those at the two ends
of its share more. Row groups come in an order that is drawn for each epoch, and their samples are
shuffled.

All ranks together hold as many row groups as there are streams, so large ones make for fewer: about
``held_rows`` samples, at 4 bytes for each feature. "eval" keeps the order of the files; each rank
reads a part of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from laconic.data.columns import CategoricalColumns, ColumnSettings, DenseColumns
from laconic.data.dense import Dense, measured
from laconic.data.division import Division
from laconic.data.hashing import key64
from laconic.data.odd_counts import OddCounts
from laconic.data.odd_values import OddValues
from laconic.data.raw_source import RawValues
from laconic.data.raw_values import kind_of_values, raw_values
from laconic.data.row_groups import RowGroups
from laconic.data.sample_block import BagColumn, SampleBlock, SpareBlock
from laconic.data.sample_decoder import SampleDecoder, flat, is_bag
from laconic.data.source import Samples, check_batches, check_split, permute, shuffled
from laconic.data.stream_reader import StreamReader
from laconic.data.streams import Streams, stream_count
from laconic.data.vocabulary import Hashed, IdMap, Known, read_vocabulary
from laconic.errors import ConfigError, FormatError
from laconic.lookups import Lookups

__all__ = ["HELD_ROWS", "STREAMS", "Parquet", "dense_features", "id_map"]

STREAMS, HELD_ROWS = 64, 1 << 22
_IN_ORDER = 32768


class Parquet:
    """A source that streams files with one row for each sample."""

    def __init__(
        self,
        paths: Sequence[str | Path],
        columns: ColumnSettings,
        *,
        seed: int = 0,
        streams: int = STREAMS,
        held_rows: int = HELD_ROWS,
    ) -> None:
        self._groups = RowGroups(paths)
        where = str(self._groups.files[0])
        columns = columns.expanded(self._groups.schema.names, where=where)
        maps = {c.columns: id_map(c, self._groups, where) for c in columns.categorical}
        self._decoder = SampleDecoder(
            columns.label, dense_features(columns.dense, self._groups), maps, self._groups.schema
        )
        self._memory = SpareBlock(self._decoder.empty())
        self._columns, self._maps = columns, maps
        self._odd = OddValues(self._decoder.dense, maps)
        self._ids = SampleDecoder(columns.label, (), maps, self._groups.schema)
        self.schema = self._decoder.schema
        self._groups.check_columns(self._decoder.columns)
        self._division = Division(columns.split, self._groups)
        self._seed = seed
        self._least_streams = _least_streams(self._groups.rows, streams, held_rows)

    def raw_values(self) -> RawValues:
        """Return how raw values become samples; reads the vocabularies of prepared columns."""
        return raw_values(self._columns, self._decoder.dense, self._maps, self._groups.schema)

    def odd_values(self) -> dict[int, tuple[OddCounts, ...]]:
        """Return columns with replaced values, by row group that was read so far."""
        return self._odd.by_group()

    def samples_in(self, split: str) -> int:
        """Count the samples of an epoch."""
        check_split(split)
        return sum(self._division.counts[split])

    def streams(self, split: str, ranks: int) -> int:
        """Return the number of streams for so many ranks; of what keeps its order, one for each."""
        return stream_count(ranks, self._least_streams) if split == "train" else ranks

    def batches(
        self,
        split: str,
        *,
        global_batch: int,
        rank: int,
        ranks: int,
        epoch: int = 0,
        start: int = 0,
        streams: int | None = None,
    ) -> Iterator[Samples]:
        """Yield this rank's slice of every global batch, from sample ``start`` of the epoch on."""
        total, trains = self.samples_in(split), split == "train"
        check_batches(total, global_batch=global_batch, rank=rank, ranks=ranks, start=start)
        order = np.arange(len(self._groups.rows))
        if trains:
            order = permute(order, len(order), key64("row groups", self._seed, epoch))
        begins = np.concatenate([[0], np.cumsum(np.array(self._division.counts[split], np.int64)[order])])
        divided = Streams(total, streams or self.streams(split, ranks), turned=trains)

        def decode(place: int, block: SampleBlock) -> dict[int, BagColumn]:
            group = int(order[place])
            key = key64("samples", self._seed, epoch, group) if trains else None
            return self._decode(split, group, block, key)

        largest = max(self._division.counts[split], default=0)
        reader = StreamReader(divided, divided.of(rank, ranks), begins, largest, self._memory, decode)
        return (block.samples() for block in reader.batches(start, global_batch))

    def _decode(
        self, split: str, group: int, block: SampleBlock, key: np.uint64 | None
    ) -> dict[int, BagColumn]:
        """Decode a row group's samples of a split into a block; ``key``: that of the shuffle."""
        table = self._groups.read(group, self._columns_of(group, self._decoder))
        try:
            self._odd.add(group, table)
            rows = self._division.select(split, group, table)
            return self._decoder.decode_into(
                block, table, rows if key is None else rows[shuffled(len(rows), key)]
            )
        except FormatError as error:
            raise FormatError(f"{self._groups.where(group)}: {error}") from error

    def _columns_of(self, group: int, decoder: SampleDecoder) -> list[str]:
        return [*decoder.columns, *self._division.columns_of(group)]

    def lookups_in_order(self, split: str) -> Iterator[Lookups]:
        """Yield the lookups of all samples in the order of the files, one row group at a time."""
        check_split(split)
        return (
            block.samples().lookups
            for group in range(len(self._groups.rows))
            for block in self._blocks_in_order(split, group)
        )

    def _blocks_in_order(self, split: str, group: int) -> Iterator[SampleBlock]:
        table = self._groups.read(group, self._columns_of(group, self._ids))
        try:
            rows = self._division.select(split, group, table)
            block = self._ids.decode(table, rows)
        except FormatError as error:
            raise FormatError(f"{self._groups.where(group)}: {error}") from error
        for begin in range(0, rows.size, _IN_ORDER):
            yield block.take(np.arange(begin, min(begin + _IN_ORDER, rows.size)))


def _least_streams(rows: Sequence[int], streams: int, held_rows: int) -> int:
    """Return the streams that are wanted, or fewer where row groups are too large for them."""
    if sum(rows) > held_rows:
        streams = min(streams, max(held_rows // max(rows), 1))
        return 1 << (streams.bit_length() - 1)
    return streams


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
