"""Reference kernels: every operation in Python and torch, slow and readable: the specification.

The C++ kernels produce the same bytes and the same values. Read the files from the bottom up::

    serving/     embedding_bag  dense  quantize_rows  row_ranges
    rows/        rows  first_rows  sorted_keys  threshold_rows  bit_rows
    sparse/      sparse  positions  sketch
    blocks/      batch: many blocks; rows_block  sc24_blocks  lossless  cast: their kinds;
                 quantized_block  code_section  code_counts  deduplicate: their sections
    quantize/    grid  quantize  levels
    sequence/    heads  id_list  numbers  sequence  coding  huffman  static_code  bits
    byte_io

``describe_block`` and ``describe_ids`` explain a given block byte by byte.
"""

from __future__ import annotations

from laconic.kernels.api import Kernels
from laconic.kernels.reference.blocks import batch
from laconic.kernels.reference.quantize import levels
from laconic.kernels.reference.rows import bit_rows, first_rows, rows, sorted_keys, threshold_rows
from laconic.kernels.reference.sequence import heads
from laconic.kernels.reference.serving import dense, embedding_bag, quantize_rows
from laconic.kernels.reference.sparse import sketch, sparse

__all__ = ["Reference"]


class Reference:
    """The slow twin of the native kernels; ``threads`` is of no consequence."""

    name = "reference"

    max_bytes = staticmethod(batch.max_bytes)
    encode_blocks = staticmethod(batch.encode_blocks)
    decode_blocks = staticmethod(batch.decode_blocks)
    encode_ids = staticmethod(batch.encode_ids)
    decode_ids = staticmethod(batch.decode_ids)
    count_ids = staticmethod(batch.count_ids)
    encode_heads = staticmethod(heads.encode_heads)
    decode_heads = staticmethod(heads.decode_heads)

    sparse_index_room = staticmethod(sparse.sparse_index_room)
    compact = staticmethod(sparse.compact)
    compact_large = staticmethod(sparse.compact_large)
    place_sum = staticmethod(sparse.place_sum)
    compact_sum = staticmethod(sparse.compact_sum)
    encode_sketch = staticmethod(sketch.encode_sketch)
    decode_sketch = staticmethod(sketch.decode_sketch)
    to_levels = staticmethod(levels.to_levels)
    from_levels = staticmethod(levels.from_levels)

    first_rows = staticmethod(first_rows.first_rows)
    stable_order = staticmethod(sorted_keys.stable_order)
    distinct_keys = staticmethod(sorted_keys.distinct_keys)
    add_rows = staticmethod(rows.add_rows)
    sum_bags = staticmethod(rows.sum_bags)
    update_rows = staticmethod(rows.update_rows)
    threshold_rows = staticmethod(threshold_rows.threshold_rows)
    choose_bits = staticmethod(bit_rows.choose_bits)
    count_bits = staticmethod(bit_rows.count_bits)
    take_bits = staticmethod(bit_rows.take_bits)
    put_bits = staticmethod(bit_rows.put_bits)
    add_bits = staticmethod(bit_rows.add_bits)

    row_tables = staticmethod(embedding_bag.RowTables)
    embedding_bags = staticmethod(embedding_bag.embedding_bags)
    quantize_rows = staticmethod(quantize_rows.quantize_rows)
    int8_layers = staticmethod(dense.Int8Layers)
    interact = staticmethod(dense.interact)


_: Kernels = Reference()
