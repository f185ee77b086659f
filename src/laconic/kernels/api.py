"""The interface of the kernels: every operation once, with what it does and what it needs."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from laconic.kernels.blocks import BlockTable
from laconic.kernels.sketch_layout import SketchLayout

__all__ = ["Array", "Kernels"]

Array = NDArray[Any]
"""Memory that a kernel reads or fills; ``tensor.numpy()`` shares it, and crosses to C++ faster than a tensor."""


class Kernels(Protocol):
    """One implementation. Arrays are the caller's and contiguous, of one dimension where nothing else is said.

    Tables of rows are matrices, float32 or float64, all arrays of a call alike; indices are int64. The
    operations on them raise ``ValueError`` with the value that does not fit, before anything is written.
    """

    @property
    def name(self) -> str:
        """What ``LACONIC_KERNELS`` calls it."""
        ...

    def max_bytes(self, table: BlockTable) -> int:
        """Room that ``encode_blocks`` needs in ``out``."""
        ...

    def encode_blocks(self, table: BlockTable, x: Array, out: Array, offsets: Array, threads: int) -> None:
        """Encode the blocks of ``x``, back to back, into ``out``.

        Block ``i`` becomes ``out[offsets[i]:offsets[i + 1]]``; ``offsets`` is int64 and has one
        entry more than there are blocks.
        """
        ...

    def decode_blocks(
        self, table: BlockTable, block: Array, offsets: Array, out: Array, threads: int
    ) -> None:
        """Undo ``encode_blocks``; raises ``FormatError`` that names the first bad block."""
        ...

    def encode_ids(self, counts: Array, ids: Array, out: Array, offsets: Array, threads: int) -> None:
        """Encode lists of ``counts[i]`` ids each; ``out`` needs 8 bytes an id and 16 a list."""
        ...

    def decode_ids(self, counts: Array, block: Array, offsets: Array, out: Array, threads: int) -> None:
        """Undo ``encode_ids``."""
        ...

    def count_ids(self, block: Array) -> int:
        """How many ids a block says it has; not yet verified."""
        ...

    def sparse_index_room(self, words: int, unit: int) -> int:
        """Most bytes of the index of a sparse tensor."""
        ...

    def compact(self, x: Array, bounds: Array, unit: int, index: Array, values: Array, sizes: Array) -> None:
        """Find where each segment of ``x`` is not zero, from ``bounds[s]`` to ``bounds[s + 1]``: see docs/formats/sparse.md.

        A unit is 1 to 64 (a power of two) neighboring words that are there or not together. Index and values of the
        segments lie back to back; ``sizes[s]`` are its bytes of index and its words. Values are of four types:
        float32, float64, int32, int64.
        """
        ...

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
        """``memory += gradient``, ``gradient = 0``; entries of at least their threshold, or NaN, move out of memory.

        Layer ``s`` is from ``bounds[s]`` to ``bounds[s + 1]`` and has ``thresholds[s]``; ``counts[s]`` of it move. Float32. Returns the bytes of the index and the number of values.
        """
        ...

    def place_sum(
        self, index: Array, index_bounds: Array, values: Array, value_bounds: Array, unit: int, out: Array
    ) -> None:
        """Set the entries that any part has to the sum of the parts in their order, each from +0; others stay.

        Raises ``FormatError`` if a part is not one of a tensor like ``out``; integers wrap.
        """
        ...

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
        """Write the sum of the parts as ``compact`` would; returns its bytes of index and its words."""
        ...

    def to_levels(self, x: Array, counts: Array, levels: Array, bases: Array) -> None:
        """Round ``counts[l]`` float32 of each layer to levels, integers within 100 as float32: four an octave.

        A ninth of a value is the largest error, down to 25 octaves below the layer's largest; ``bases`` (int32) are
        what ``from_levels`` needs. A layer that is not finite comes back as NaN.
        """
        ...

    def from_levels(self, levels: Array, counts: Array, bases: Array, out: Array) -> None:
        """Undo ``to_levels``; any float is taken for the nearest level, and none that there is for NaN."""
        ...

    def add_rows(self, out: Array, index: Array, source: Array, source_index: Array | None) -> None:
        """``out[index[i]] += source[source_index[i]]`` for every ``i`` in order; None: ``source[i]``."""
        ...

    def sum_bags(self, out: Array, weight: Array, index: Array, offsets: Array | None) -> None:
        """``out[b] =`` sum of ``weight[index[i]]`` over ``i`` from ``offsets[b]`` to ``offsets[b + 1]``, in order.

        An empty bag is 0. ``offsets`` has one entry more than there are bags; None: ``out[i] =
        weight[index[i]]``.
        """
        ...

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
        """One step of an :class:`Optimizer` on the rows that have gradients; returns how many rows those are.

        Contribution ``i`` is ``grads[grad_index[i]]`` (None: ``grads[i]``) and belongs to row ``rows[i]``.
        ``order`` sorts ``rows`` stably, as ``argsort(rows, kind="stable")`` does; the contributions of a row
        are summed in their order. ``state`` is None for SGD. With an epsilon of 0, a row that has only
        ever had gradients of 0 becomes NaN.
        """
        ...

    def encode_sketch(self, layout: SketchLayout, x: Array, cells: Array, index: Array) -> int:
        """Fill ``cells`` and ``index`` (uint32) with the sketch of ``x``; return the largest magnitude in ``x``.

        ``x`` and ``cells`` are int32 or int64, each for itself; cells wrap.
        """
        ...

    def decode_sketch(self, layout: SketchLayout, cells: Array, index: Array, out: Array) -> int:
        """Fill ``out``, of the type of ``cells``, and return 0; or return how many entries could not be peeled.

        ``FormatError`` if no vector has these cells and this index.
        """
        ...

    def threshold_rows(self, x: Array, keep: float, method: int, places: Array, values: Array) -> int:
        """Entries of the float32 matrix ``x`` that reach their row's threshold; returns how many do.

        Entry ``i`` is ``values[i]`` and was at row ``places[i] % rows``, column ``places[i] // rows``; places
        ascend. ``method`` is 0 for a Laplace fit, 1 for exact top-k. Zeros are never kept, NaN and infinities
        always. ``places`` (int64) and ``values`` need room for every entry.
        """
        ...

    def choose_bits(self, x: Array, keep: float, method: int, bits: Array, values: Array) -> int:
        """Find what ``threshold_rows`` does, with a bit for each entry instead of places; returns how many there are.

        A row has whole bytes, its first column the lowest bit, what is past its last column 0; ``values`` are row by
        row, and have room for every entry. Rows of ``x``, here and below, may lie apart, their entries may not.
        """
        ...

    def count_bits(self, bits: Array, rows: int, cols: int) -> int:
        """Return how many entries there are; ``FormatError`` where a bit past the last column is set."""
        ...

    def take_bits(self, bits: Array, x: Array, values: Array) -> None:
        """Fill ``values`` with the entries of ``x``; it has a value for each bit that is set."""
        ...

    def put_bits(self, bits: Array, values: Array, x: Array) -> None:
        """Fill ``x`` with the values of the entries, and 0 elsewhere."""
        ...

    def add_bits(self, bits: Array, values: Array, x: Array) -> None:
        """Add values to the entries of ``x``."""
        ...

    def row_tables(self, dim: int) -> Any:
        """Tables of rows in few bits, none yet: ``add(rows, format)`` copies one in, ``share(other, i)`` takes another's.

        ``rows`` is a matrix of uint8, ``format`` 0 to 4: fp32, fp16, int8, int4, int2; see ``reference.embedding_bag``.
        """
        ...

    def embedding_bags(
        self,
        tables: Any,
        ids: Array,
        offsets: Array,
        weights: Array | None,
        mean: bool,
        unknown: Array | None,
        out: Array,
        first: int,
        threads: int,
    ) -> int:
        """Look up and pool bags of all tables: bag (t, b) becomes ``out[b, first + t]``.

        Bag (t, b) is ``ids[offsets[t * samples + b]:offsets[t * samples + b + 1]]``. ``weights``: one for every id.
        ``unknown``: for every table the row that stands for ids outside of it; below 0, or None, they are refused.
        Returns the place of the first id that is refused, ``out`` unspecified then, or -1.
        """
        ...

    def quantize_rows(self, x: Array, format: int, method: int, out: Array, threads: int) -> int:
        """Rows of the float32 matrix ``x`` in few bits, each by itself; ``format`` 2 to 4 as in ``row_tables``.

        ``method`` says how ranges are searched, 0 to 2: minmax, greedy, least squares; see ``reference.row_ranges``.
        Returns the first row that has something the format does not hold, ``out`` unspecified then, or -1.
        """
        ...

    def int8_layers(self) -> Any:
        """Fully connected layers, none yet, that feed one another; see ``reference.dense``.

        ``add(weights, scales, biases, equal, range, relu)`` takes a layer: int8 weights, outputs x inputs, a float32
        scale and bias for every output; ``equal`` and ``range`` may be None. ``run(x, out, threads)`` fills ``out``.
        """
        ...

    def interact(self, vectors: Array, keep: int, out: Array, threads: int) -> None:
        """Row b of ``out``: the first ``keep`` vectors of sample b, then dot products of its vectors j < i, i by i."""
        ...
