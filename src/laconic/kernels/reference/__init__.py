"""Reference kernels: every operation in Python and torch, slow and readable. They are the specification.

The C++ kernels produce the same bytes and the same values. Read the files from the bottom up::

    serving/     embedding_bag  dense  quantize_rows  row_ranges
    rows/        rows  threshold_rows  bit_rows
    sparse/      sparse  positions  sketch
    blocks/      batch: many blocks; rows_block  sc24_blocks  lossless  cast: their kinds;
                 quantized_block  code_section  code_counts  deduplicate: their sections
    quantize/    grid  quantize  sample  squares  levels
    sequence/    id_list  numbers  sequence  coding  huffman  static_code  huffman_code  group  bits
    byte_io

``describe`` explains a given block byte by byte.
"""

from __future__ import annotations

from laconic.kernels.blocks import BlockTable
from laconic.kernels.reference.blocks.batch import (
    Array,
    check,
    decode_block,
    naming,
    parts,
    read_counts,
    read_table,
    reader_of,
    readers,
    write_blocks,
)
from laconic.kernels.reference.quantize import levels as levels_of
from laconic.kernels.reference.rows.bit_rows import add_bits, choose_bits, count_bits, put_bits, take_bits
from laconic.kernels.reference.rows.rows import add_rows, sum_bags, update_rows
from laconic.kernels.reference.rows.threshold_rows import threshold_rows
from laconic.kernels.reference.sequence import id_list
from laconic.kernels.reference.serving.dense import Int8Layers, interact
from laconic.kernels.reference.serving.embedding_bag import RowTables, embedding_bags
from laconic.kernels.reference.serving.quantize_rows import quantize_rows
from laconic.kernels.reference.sparse import sparse
from laconic.kernels.reference.sparse.sketch import decode_sketch, encode_sketch
from laconic.kernels.sketch_layout import SketchLayout

__all__ = ["ReferenceKernels"]


class ReferenceKernels:
    """The slow twin of the native kernels; ``threads`` is of no consequence."""

    name = "reference"

    def max_bytes(self, table: BlockTable) -> int:
        """Room that ``encode_blocks`` needs."""
        return sum(block.max_bytes() for block in read_table(table))

    def encode_blocks(self, table: BlockTable, x: Array, out: Array, offsets: Array, threads: int) -> None:
        """Encode one block after the other."""
        blocks = read_table(table)
        counts = [block.rows * block.cols for block in blocks]
        check(len(x) == sum(counts), "x does not have as many values as the blocks")
        check(len(out) >= sum(b.max_bytes() for b in blocks), "out is smaller than max_bytes of the blocks")
        check(len(offsets) == len(blocks) + 1, "offsets must have one more entry than there are blocks")
        encoded = [block.encode(part) for block, part in zip(blocks, parts(x, counts), strict=True)]
        write_blocks(encoded, out, offsets)

    def decode_blocks(
        self, table: BlockTable, block: Array, offsets: Array, out: Array, threads: int
    ) -> None:
        """Decode one block after the other."""
        blocks = read_table(table)
        counts = [b.rows * b.cols for b in blocks]
        check(len(out) == sum(counts), "out does not have as many values as the blocks")
        check(len(offsets) == len(blocks) + 1, "offsets must have one more entry than there are blocks")
        for i, (reader, part) in enumerate(zip(readers(block, offsets), parts(out, counts), strict=True)):
            with naming(i, len(blocks)):
                part.copy_(decode_block(blocks[i].kind, reader, blocks[i].rows, blocks[i].cols))

    def encode_ids(self, counts: Array, ids: Array, out: Array, offsets: Array, threads: int) -> None:
        """Encode one list after the other."""
        lengths = read_counts(counts)
        check(len(ids) == sum(lengths), "ids does not have as many values as counts says")
        room = sum(map(id_list.ids_max_bytes, lengths))
        check(len(out) >= room, "out is smaller than max_bytes of the lists")
        check(len(offsets) == len(lengths) + 1, "offsets must have one more entry than there are lists")
        write_blocks([id_list.encode_ids(part) for part in parts(ids, lengths)], out, offsets)

    def decode_ids(self, counts: Array, block: Array, offsets: Array, out: Array, threads: int) -> None:
        """Decode one list after the other."""
        lengths = read_counts(counts)
        check(len(out) == sum(lengths), "out does not have as many values as counts says")
        check(len(offsets) == len(lengths) + 1, "offsets must have one more entry than there are lists")
        for i, (reader, part) in enumerate(zip(readers(block, offsets), parts(out, lengths), strict=True)):
            with naming(i, len(lengths)):
                part.copy_(id_list.decode_ids(reader, lengths[i]))

    def count_ids(self, block: Array) -> int:
        """How many ids a block says it has."""
        return id_list.count_ids(reader_of(block))

    def sparse_index_room(self, words: int, unit: int) -> int:
        """Most bytes of an index."""
        return sparse.sparse_index_room(words, unit)

    def compact(self, x: Array, bounds: Array, unit: int, index: Array, values: Array, sizes: Array) -> None:
        """Find what is not zero."""
        sparse.compact(x, bounds, unit, index, values, sizes)

    def compact_large(
        self,
        gradient: Array,
        memory: Array,
        bounds: Array,
        thresholds: Array,
        index: Array,
        values: Array,
        counts: Array,
    ) -> tuple[int, int]:
        """Find what is large."""
        return sparse.compact_large(gradient, memory, bounds, thresholds, index, values, counts)

    def place_sum(
        self, index: Array, index_bounds: Array, values: Array, value_bounds: Array, unit: int, out: Array
    ) -> None:
        """Sum sparse tensors into a dense one."""
        sparse.place_sum(index, index_bounds, values, value_bounds, unit, out)

    def compact_sum(
        self,
        index: Array,
        index_bounds: Array,
        values: Array,
        value_bounds: Array,
        words: int,
        unit: int,
        index_out: Array,
        values_out: Array,
    ) -> tuple[int, int]:
        """Sum sparse tensors into a sparse one."""
        return sparse.compact_sum(
            index, index_bounds, values, value_bounds, words, unit, index_out, values_out
        )

    def to_levels(self, x: Array, counts: Array, levels: Array, bases: Array) -> None:
        """Round to levels, layer by layer."""
        levels_of.to_levels(x, counts, levels, bases)

    def from_levels(self, levels: Array, counts: Array, bases: Array, out: Array) -> None:
        """Undo ``to_levels``."""
        levels_of.from_levels(levels, counts, bases, out)

    def add_rows(self, out: Array, index: Array, source: Array, source_index: Array | None) -> None:
        """Add one row after the other."""
        add_rows(out, index, source, source_index)

    def sum_bags(self, out: Array, weight: Array, index: Array, offsets: Array | None) -> None:
        """Sum one bag after the other."""
        sum_bags(out, weight, index, offsets)

    def update_rows(
        self,
        weight: Array,
        state: Array | None,
        rows: Array,
        order: Array,
        grads: Array,
        grad_index: Array | None,
        optimizer: int,
        rate: float,
        epsilon: float,
    ) -> int:
        """Update one row after the other."""
        return update_rows(weight, state, rows, order, grads, grad_index, optimizer, rate, epsilon)

    def encode_sketch(self, layout: SketchLayout, x: Array, cells: Array, index: Array) -> int:
        """Add one hash after the other."""
        return encode_sketch(layout, x, cells, index)

    def decode_sketch(self, layout: SketchLayout, cells: Array, index: Array, out: Array) -> int:
        """Peel in rounds: all entries that are alone in a cell, then those that thereby are."""
        return decode_sketch(layout, cells, index, out)

    def threshold_rows(self, x: Array, keep: float, method: int, places: Array, values: Array) -> int:
        """Threshold one row after the other."""
        return threshold_rows(x, keep, method, places, values)

    def choose_bits(self, x: Array, keep: float, method: int, bits: Array, values: Array) -> int:
        """Threshold one row after the other."""
        return choose_bits(x, keep, method, bits, values)

    def count_bits(self, bits: Array, rows: int, cols: int) -> int:
        """Look at them as a mask."""
        return count_bits(bits, rows, cols)

    def take_bits(self, bits: Array, x: Array, values: Array) -> None:
        """Take by a mask."""
        take_bits(bits, x, values)

    def put_bits(self, bits: Array, values: Array, x: Array) -> None:
        """Put by a mask."""
        put_bits(bits, values, x)

    def add_bits(self, bits: Array, values: Array, x: Array) -> None:
        """Add by a mask."""
        add_bits(bits, values, x)

    def row_tables(self, dim: int) -> RowTables:
        """Tables as they are given."""
        return RowTables(dim)

    def embedding_bags(
        self,
        tables: RowTables,
        ids: Array,
        offsets: Array,
        weights: Array | None,
        mean: bool,
        unknown: Array | None,
        out: Array,
        first: int,
        threads: int,
    ) -> int:
        """Look up and pool one bag after the other."""
        return embedding_bags(tables, ids, offsets, weights, mean, unknown, out, first)

    def quantize_rows(self, x: Array, format: int, method: int, out: Array, threads: int) -> int:
        """Search and round all rows side by side."""
        return quantize_rows(x, format, method, out)

    def int8_layers(self) -> Int8Layers:
        """Layers as they are given."""
        return Int8Layers()

    def interact(self, vectors: Array, keep: int, out: Array, threads: int) -> None:
        """Multiply all pairs."""
        interact(vectors, keep, out)
