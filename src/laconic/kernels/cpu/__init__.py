"""The C++ kernels behind the common interface."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from laconic.kernels.blocks import BlockTable
from laconic.kernels.cpu import _native
from laconic.kernels.sketch_layout import SketchLayout

__all__ = ["NativeKernels", "available"]

Array = NDArray[Any]


def available() -> tuple[str, ...]:
    """Instruction sets that this build has and this machine runs, best first."""
    return tuple(_native.available())


class NativeKernels:
    """C++ for one instruction set."""

    def __init__(self, name: str) -> None:
        self.name = name

    def max_bytes(self, table: BlockTable) -> int:
        """Room that ``encode_blocks`` needs."""
        return _native.max_bytes(*table.arrays)

    def encode_blocks(self, table: BlockTable, x: Array, out: Array, offsets: Array, threads: int) -> None:
        """Encode all blocks in one call."""
        _native.encode_blocks(
            self.name,
            *table.arrays,
            x,
            out,
            offsets,
            threads,
        )

    def decode_blocks(
        self, table: BlockTable, block: Array, offsets: Array, out: Array, threads: int
    ) -> None:
        """Decode all blocks in one call."""
        _native.decode_blocks(
            self.name,
            *table.arrays,
            block,
            offsets,
            out,
            threads,
        )

    def encode_ids(self, counts: Array, ids: Array, out: Array, offsets: Array, threads: int) -> None:
        """Encode all lists in one call."""
        _native.encode_ids(self.name, counts, ids, out, offsets, threads)

    def decode_ids(self, counts: Array, block: Array, offsets: Array, out: Array, threads: int) -> None:
        """Decode all lists in one call."""
        _native.decode_ids(self.name, counts, block, offsets, out, threads)

    def count_ids(self, block: Array) -> int:
        """How many ids a block says it has."""
        return _native.count_ids(block)

    def sparse_index_room(self, words: int, unit: int) -> int:
        """Most bytes of an index."""
        return _native.sparse_index_room(words, unit)

    def compact(self, x: Array, bounds: Array, unit: int, index: Array, values: Array, sizes: Array) -> None:
        """Find what is not zero."""
        _native.compact(self.name, x, bounds, unit, index, values, sizes)

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
        return _native.compact_large(self.name, gradient, memory, bounds, thresholds, index, values, counts)

    def place_sum(
        self, index: Array, index_bounds: Array, values: Array, value_bounds: Array, unit: int, out: Array
    ) -> None:
        """Sum sparse tensors into a dense one."""
        _native.place_sum(index, index_bounds, values, value_bounds, unit, out)

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
        return _native.compact_sum(
            index, index_bounds, values, value_bounds, words, unit, index_out, values_out
        )

    def to_levels(self, x: Array, counts: Array, levels: Array, bases: Array) -> None:
        """Round to levels, layer by layer."""
        _native.to_levels(self.name, x, counts, levels, bases)

    def from_levels(self, levels: Array, counts: Array, bases: Array, out: Array) -> None:
        """Undo ``to_levels``."""
        _native.from_levels(self.name, levels, counts, bases, out)

    def add_rows(self, out: Array, index: Array, source: Array, source_index: Array | None) -> None:
        """Add rows to rows."""
        _native.add_rows(self.name, out, index, source, source_index)

    def sum_bags(self, out: Array, weight: Array, index: Array, offsets: Array | None) -> None:
        """Sum or gather rows."""
        _native.sum_bags(self.name, out, weight, index, offsets)

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
        """Sum gradients and update rows in one pass."""
        return _native.update_rows(
            self.name, weight, state, rows, order, grads, grad_index, optimizer, rate, epsilon
        )

    def encode_sketch(self, layout: SketchLayout, x: Array, cells: Array, index: Array) -> int:
        """Find, hash and add the entries in one pass."""
        return _native.encode_sketch(self.name, layout.numbers, x, cells, index)

    def decode_sketch(self, layout: SketchLayout, cells: Array, index: Array, out: Array) -> int:
        """Peel."""
        return _native.decode_sketch(self.name, layout.numbers, cells, index, out)

    def threshold_rows(self, x: Array, keep: float, method: int, places: Array, values: Array) -> int:
        """Find and compact all rows' largest entries in one call."""
        return _native.threshold_rows(self.name, x, keep, method, places, values)

    def choose_bits(self, x: Array, keep: float, method: int, bits: Array, values: Array) -> int:
        """Find and compact all rows' largest entries in one call."""
        return _native.choose_bits(self.name, x, keep, method, bits, values)

    def count_bits(self, bits: Array, rows: int, cols: int) -> int:
        """Count a word at a time."""
        return _native.count_bits(bits, rows, cols)

    def take_bits(self, bits: Array, x: Array, values: Array) -> None:
        """Look only at words of bits that are not 0."""
        _native.take_bits(bits, x, values)

    def put_bits(self, bits: Array, values: Array, x: Array) -> None:
        """Clear a row, and fill it while it is in the cache."""
        _native.put_bits(bits, values, x)

    def add_bits(self, bits: Array, values: Array, x: Array) -> None:
        """Touch nothing but the entries."""
        _native.add_bits(bits, values, x)

    def row_tables(self, dim: int) -> _native.RowTables:
        """Tables in native memory."""
        return _native.RowTables(dim)

    def embedding_bags(
        self,
        tables: _native.RowTables,
        ids: Array,
        offsets: Array,
        weights: Array | None,
        mean: bool,
        unknown: Array | None,
        out: Array,
        first: int,
        threads: int,
    ) -> int:
        """Look up and pool all tables in one call."""
        return _native.embedding_bags(
            self.name, tables, ids, offsets, weights, mean, unknown, out, first, threads
        )

    def quantize_rows(self, x: Array, format: int, method: int, out: Array, threads: int) -> int:
        """Search and round all rows in one call."""
        return _native.quantize_rows(self.name, x, format, method, out, threads)

    def int8_layers(self) -> _native.Int8Layers:
        """Layers in native memory."""
        return _native.Int8Layers(self.name)

    def interact(self, vectors: Array, keep: int, out: Array, threads: int) -> None:
        """Multiply all pairs in one call."""
        _native.interact(self.name, vectors, keep, out, threads)
