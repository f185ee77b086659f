"""The interface of the kernels: every operation once, with what it does and what it needs."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from laconic.kernels.blocks import BlockTable
from laconic.kernels.operands import LayerThresholds, RowBags, RowNoise, RowTable, RowUpdate, SparseParts
from laconic.kernels.sketch_layout import SketchLayout

__all__ = ["Array", "Kernels"]

Array = NDArray[Any]
"""Memory that a kernel reads or fills.

``tensor.numpy()`` shares it, and crosses to C++ faster than a tensor does.
"""


class Kernels(Protocol):
    """One implementation.

    Arrays belong to the caller and are contiguous. They have one dimension unless something else is
    said. Tables of rows are matrices of float32 or float64, all arrays of a call alike; indices are
    int64. The operations on them raise ``ValueError`` with the value that does not fit, before
    anything is written.
    """

    @property
    def name(self) -> str:
        """What ``LACONIC_KERNELS`` calls it."""
        ...

    def max_bytes(self, table: BlockTable) -> int:
        """Return the bytes that ``encode_blocks`` needs in ``out``."""
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
        """Return the number of ids that a block says it has; nothing has verified it yet."""
        ...

    def encode_heads(self, numbers: Array, out: Array, offsets: Array) -> None:
        """Encode the heads of messages: a row of the int64 matrix ``numbers`` for each.

        Head ``i`` becomes ``out[offsets[i]:offsets[i + 1]]``. For each, ``out`` needs a bit and ten
        bytes a number.
        """
        ...

    def decode_heads(self, block: Array, offsets: Array, numbers: Array) -> None:
        """Undo ``encode_heads``; raises ``FormatError`` that names the first bad head."""
        ...

    def sparse_index_room(self, words: int, unit: int) -> int:
        """Return the most bytes that the index of a sparse tensor can take."""
        ...

    def compact(self, x: Array, bounds: Array, unit: int, index: Array, values: Array, sizes: Array) -> None:
        """Find where each segment of ``x`` is not zero; see docs/formats/sparse.md.

        Segment ``s`` is from ``bounds[s]`` to ``bounds[s + 1]``. A unit is 1 to 64 (a power of two)
        neighboring words that are there or not together. Index and values of the segments lie back
        to back; ``sizes[s]`` are a segment's bytes of index and its words. Values are float32,
        float64, int32 or int64.
        """
        ...

    def compact_large(
        self,
        gradient: Array,
        memory: Array,
        layers: LayerThresholds,
        index: Array,
        values: Array,
        counts: Array,
    ) -> tuple[int, int]:
        """Add a gradient to memory, and take large entries out of it, as ``compact`` would.

        ``memory += gradient``, ``gradient = 0``. Then entries of at least their threshold, and NaN,
        move out of memory; ``counts[s]`` becomes the number of those of layer ``s``. Everything is
        float32. Returns the bytes of the index and the number of values.
        """
        ...

    def place_sum(self, parts: SparseParts, unit: int, out: Array) -> None:
        """Set the entries that any part has to the sum of the parts; other entries stay.

        A sum begins with +0 and has the order of the parts; integers wrap. Raises ``FormatError``
        if a part does not belong to a tensor like ``out``.
        """
        ...

    def compact_sum(
        self, parts: SparseParts, words: int, unit: int, index_out: Array, values_out: Array
    ) -> tuple[int, int]:
        """Write the sum of the parts as ``compact`` would; return its index bytes and words."""
        ...

    def to_levels(self, x: Array, counts: Array, levels: Array, bases: Array) -> None:
        """Round ``counts[l]`` float32 of each layer to levels, four an octave.

        Levels are integers within 100, as float32. The largest error is a ninth of a value, down to
        25 octaves below the layer's largest. ``from_levels`` needs the ``bases`` (int32). A layer
        that is not finite comes back as NaN.
        """
        ...

    def from_levels(self, levels: Array, counts: Array, bases: Array, out: Array) -> None:
        """Undo ``to_levels``.

        Any float is taken for the nearest level, and one beyond all levels for NaN.
        """
        ...

    def first_rows(self, out: Array, rows: Array, seed: int, table: int) -> None:
        """Fill ``out[i]`` (float32) with the numbers in [0, 1) of row ``rows[i]`` of a table.

        They are those that numpy's Philox generator draws for each chunk of 65,536 rows.
        """
        ...

    def stable_order(self, keys: Array, order: Array) -> None:
        """Fill ``order`` with the places of keys, at least 0, in ascending order.

        Equal keys keep their order.
        """
        ...

    def distinct_keys(self, keys: Array, distinct: Array, inverse: Array) -> int:
        """Write distinct keys in ascending order, and which of them each is; return their number.

        All three arrays are int64 and of one length; keys are at least 0.
        """
        ...

    def add_rows(self, out: Array, index: Array, source: Array, source_index: Array | None) -> None:
        """Do ``out[index[i]] += source[source_index[i]]`` for every ``i`` in order.

        If ``source_index`` is None, it is ``source[i]``.
        """
        ...

    def sum_bags(self, out: Array, weight: Array, index: Array, offsets: Array | None) -> None:
        """Fill ``out[b]`` with the sum of ``weight[index[i]]`` over the bag's ``i``, in order.

        Bag ``b`` is from ``offsets[b]`` to ``offsets[b + 1]``; ``offsets`` has one entry more than
        there are bags. An empty bag is 0. If ``offsets`` is None, ``out[i] = weight[index[i]]``.
        """
        ...

    def update_rows(
        self,
        table: RowTable,
        rows: Array,
        order: Array,
        grads: Array,
        grad_index: Array | None,
        update: RowUpdate,
        noise: RowNoise | None = None,
    ) -> int:
        """Take one step of an :class:`Optimizer` on the rows that have gradients.

        Returns the number of these rows. Contribution ``i`` is ``grads[grad_index[i]]`` (None:
        ``grads[i]``) and belongs to row ``rows[i]``. ``order`` sorts ``rows`` stably, as
        ``argsort(rows, kind="stable")`` does; the contributions of a row are summed in their order.
        With an ``eps`` of 0, a row that has only ever had gradients of 0 becomes NaN. ``noise``
        counts what rounding of the contributions put into rows.
        """
        ...

    def encode_sketch(self, layout: SketchLayout, x: Array, cells: Array, index: Array) -> int:
        """Fill ``cells`` and ``index`` (uint32) with the sketch of ``x``.

        Returns the largest magnitude in ``x``. ``x`` may be int32 or int64, and so may ``cells``,
        which wrap.
        """
        ...

    def decode_sketch(self, layout: SketchLayout, cells: Array, index: Array, out: Array) -> int:
        """Fill ``out``, which has the type of ``cells``, with the vector of a sketch.

        Returns the number of entries that could not be peeled: 0 if all were. ``FormatError`` if no
        vector has these cells and this index.
        """
        ...

    def threshold_rows(self, x: Array, keep: float, method: int, places: Array, values: Array) -> int:
        """Find the entries of the float32 matrix ``x`` that reach their row's threshold.

        Returns the number of them. Entry ``i`` is ``values[i]`` and was at row ``places[i] %
        rows``, column ``places[i] // rows``; places ascend. ``method`` is 0 for a Laplace fit, 1
        for exact top-k. Zeros are never kept, NaN and infinities always. ``places`` (int64) and
        ``values`` must be large enough for every entry.
        """
        ...

    def choose_bits(self, x: Array, keep: float, method: int, bits: Array, values: Array) -> int:
        """Find the entries that ``threshold_rows`` finds, and set a bit for each of them.

        Returns the number of them. A row has whole bytes; its first column is the lowest bit, and
        bits past its last column are 0. ``values`` are row by row, and must be large enough for
        every entry. Rows of ``x``, here and below, may lie apart; entries of a row may not.
        """
        ...

    def count_bits(self, bits: Array, rows: int, cols: int) -> int:
        """Return the number of bits set; ``FormatError`` if one past the last column is."""
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
        """Return an empty list of tables of rows in few bits.

        ``add(rows, format)`` copies a table in, ``share(other, i)`` takes one of another list.
        ``rows`` is a matrix of uint8; ``format`` is 0 to 4 for fp32, fp16, int8, int4, int2, as in
        ``reference/serving/embedding_bag.py``.
        """
        ...

    def embedding_bags(
        self,
        tables: Any,
        bags: RowBags,
        unknown: Array | None,
        out: Array,
        first: int,
        threads: int,
    ) -> int:
        """Look up and pool bags of all tables: bag (t, b) becomes ``out[b, first + t]``.

        Bag (t, b) is ``ids[offsets[t * samples + b]:offsets[t * samples + b + 1]]``. ``unknown``
        has for every table the row that stands for ids outside of the table; if it is below 0, or
        None, such ids are refused. Returns -1, or the place of the first id that was refused;
        ``out`` is unspecified then.
        """
        ...

    def quantize_rows(self, x: Array, format: int, method: int, out: Array, threads: int) -> int:
        """Write rows of the float32 matrix ``x`` in few bits, each by itself.

        ``format`` is 2 to 4 as in ``row_tables``. ``method`` says how ranges are searched: 0
        minmax, 1 greedy, 2 least squares, as in ``reference/serving/row_ranges.py``. Returns -1, or
        the first row with a value that the format does not hold; ``out`` is unspecified then.
        """
        ...

    def int8_layers(self) -> Any:
        """Return an empty list of fully connected layers that feed one another.

        ``add(weights, scales, biases, equal, range, relu)`` takes a layer: int8 weights, outputs x
        inputs, and a float32 scale and bias for every output; ``equal`` and ``range`` may be None.
        ``run(x, out, threads)`` fills ``out``; see ``reference/serving/dense.py``.
        """
        ...

    def interact(self, vectors: Array, keep: int, out: Array, threads: int) -> None:
        """Fill row b of ``out`` with the first ``keep`` vectors of sample b, and dot products.

        Those are the products of its vectors j < i, in the order of i.
        """
        ...
