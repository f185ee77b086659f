"""Measures codecs and kernels on this machine: the best of a few timings, on one thread.

Shape legend: ``T`` tables, ``R`` rows, ``D`` dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic import kernels
from laconic.codecs import Bounded, BoundedRows
from laconic.codecs.batch import Batch, BlockCodec
from laconic.cost.blocks import BLOCK_BYTES
from laconic.cost.link import CodecCost
from laconic.cost.reduce_time import KernelSpeeds
from laconic.errors import ConfigError

__all__ = ["CodecFigures", "best_of", "codec_costs", "measure_codec", "measure_dense", "measure_kernels"]

_LEAST_S = 2e-6  # below this a clock and a call tell nothing
_ROWS = 8192
_LARGE, _SMALL = 2048, 4  # rows of a block
_REPEATS = 5
_WORDS = 1 << 20


def best_of(repeats: int, call: Callable[[], Any]) -> tuple[float, Any]:
    """Return seconds of the fastest of several calls, and what the last one returned."""
    times, result = [], None
    for _ in range(repeats):
        start = perf_counter()
        result = call()
        times.append(perf_counter() - start)
    return min(times), result


def codec_costs(
    rows_TRD: Sequence[NDArray[np.float32]],
    candidates_T: Sequence[Sequence[BlockCodec | None]],
    destinations_T: Sequence[int],
) -> tuple[tuple[CodecCost | None, ...], ...]:
    """Time the candidates of each table on the rows that go to one other rank.

    A table is timed alone, and the price of the call itself is taken off: in an exchange all tables
    share one call, whose blocks are divided among threads. ``Cast("fp32")`` stands for rows
    as they are, which is what it makes of them next to tables that are coded. None is a candidate
    that is not offered, and has no cost.
    """
    if not len(rows_TRD) == len(candidates_T) == len(destinations_T):
        raise ConfigError(
            f"codec probe: expected rows, candidates and destinations of as many tables, got {len(rows_TRD)}, "
            f"{len(candidates_T)} and {len(destinations_T)}"
        )
    return tuple(
        tuple(None if codec is None else _cost(codec, rows_RD, int(destinations)) for codec in candidates)
        for rows_RD, candidates, destinations in zip(rows_TRD, candidates_T, destinations_T, strict=True)
    )


def _cost(codec: BlockCodec, rows_RD: NDArray[np.float32], destinations: int) -> CodecCost:
    if rows_RD.size == 0 or destinations == 0:
        return CodecCost(0.0, 0.0, 0.0)
    nothing_encode_s, nothing_decode_s, _ = _round_trip(codec, rows_RD[:0])
    encode_s, decode_s, nbytes = _round_trip(codec, rows_RD)
    each = destinations / torch.get_num_threads()
    return CodecCost(
        each * max(encode_s - nothing_encode_s, _LEAST_S),
        each * max(decode_s - nothing_decode_s, _LEAST_S),
        float(destinations * nbytes),
    )


def _round_trip(codec: BlockCodec, rows_RD: NDArray[np.float32]) -> tuple[float, float, int]:
    """Return seconds to encode and to decode, and bytes between them."""
    rows = torch.from_numpy(rows_RD)
    batch = Batch.of([(codec, tuple(rows.shape))])
    room, values = torch.empty(batch.max_bytes, dtype=torch.uint8), torch.empty(batch.values)
    encode_s, (data, offsets) = best_of(3, lambda: batch.encode(rows, out=room, threads=1))
    decode_s, _ = best_of(3, lambda: batch.decode(data, offsets, out=values, threads=1))
    return encode_s, decode_s, len(data)


@dataclass(frozen=True, kw_only=True, slots=True)
class CodecFigures:
    """Bytes and seconds of rows and blocks. The simulator scales them to any number of ranks."""

    row_bytes: float
    """Bytes of a row in a large block."""
    block_bytes: float
    """Bytes of a block beside those of its rows."""
    row_s: float
    """Seconds of encoding and decoding a row."""
    block_s: float

    def __post_init__(self) -> None:
        if not all(
            0 <= value < float("inf")
            for value in (self.row_bytes, self.block_bytes, self.row_s, self.block_s)
        ):
            raise ConfigError(f"codec figures: expected finite numbers >= 0, got {self}")


def measure_codec(dim: int, codec: BoundedRows) -> CodecFigures:
    """Encode and decode normal rows, a tenth of a second or so.

    With many ranks blocks become small, so the price of a block counts as well as that of a row.
    Seconds of both are fitted to one call with few large blocks and one with many small ones; bytes
    of a row are those of the large ones (``cost.blocks``). A bound that is a share is one of all
    rows, not of a block's, as in training. Trained rows and gradients that repeat, or have few
    scales, become smaller than normal ones.
    """
    rows_RD = torch.from_numpy(np.random.default_rng(0).standard_normal((_ROWS, dim)).astype(np.float32))
    codec = _absolute(codec, rows_RD)
    (large_bytes, large_s), (_, small_s) = (_in_blocks(codec, rows_RD, n) for n in (_LARGE, _SMALL))
    large, small = _ROWS // _LARGE, _ROWS // _SMALL
    block_s = max(small_s - large_s, 0.0) / (small - large)
    return CodecFigures(
        row_bytes=max(large_bytes - large * BLOCK_BYTES, 0.0) / _ROWS,
        block_bytes=BLOCK_BYTES,
        row_s=max(large_s - large * block_s, 0.0) / _ROWS,
        block_s=block_s,
    )


def _absolute(codec: BoundedRows, rows_RD: torch.Tensor) -> BoundedRows:
    """Return a codec whose bound is what the share of all rows' range or RMS comes to."""
    if codec.relative_to is None:
        return codec
    scale = rows_RD.max() - rows_RD.min() if codec.relative_to == "range" else rows_RD.square().mean().sqrt()
    return replace(codec, bound=codec.bound * float(scale), relative_to=None)


def _in_blocks(codec: BoundedRows, rows_RD: torch.Tensor, block: int) -> tuple[int, float]:
    """Return bytes of rows in blocks of this size, and seconds of a round trip."""
    batch = Batch.of([(codec, (block, rows_RD.shape[1]))] * (len(rows_RD) // block))

    def there_and_back() -> int:
        data, offsets = batch.encode(rows_RD.reshape(-1), threads=1)
        batch.decode(data, offsets, threads=1)
        return len(data)

    seconds, nbytes = best_of(_REPEATS, there_and_back)
    return nbytes, seconds


def measure_dense() -> tuple[float, float]:
    """Return the ratio of levels, and seconds per byte of encoding once and decoding twice.

    This is how dense gradients are sent. The codec is that of ``reduce.ways.coded``: levels,
    entropy-coded as integers.
    """
    active = kernels.active()
    values = np.random.default_rng(0).standard_normal(_WORDS).astype(np.float32)
    levels, bases, counts = np.empty_like(values), np.empty(1, np.int32), np.array([len(values)])
    batch = Batch.of([(Bounded(0.45), values.shape)])

    def encode() -> tuple[torch.Tensor, Any]:
        active.to_levels(values, counts, levels, bases)
        return batch.encode(torch.from_numpy(levels), threads=1)

    encode_s, (data, offsets) = best_of(_REPEATS, encode)
    decode_s, _ = best_of(
        _REPEATS,
        lambda: active.from_levels(batch.decode(data, offsets, threads=1).numpy(), counts, bases, levels),
    )
    return values.nbytes / len(data), (encode_s + 2 * decode_s) / values.nbytes


def measure_kernels() -> KernelSpeeds:
    """Time how fast this machine compacts and adds 4 MB: empty, one in twenty, and dense."""
    active = kernels.active()
    empty, some = np.zeros(_WORDS, np.float32), np.zeros(_WORDS, np.float32)
    some[::20] = 1
    index = np.empty(active.sparse_index_room(_WORDS, 1), np.uint8)
    values, sizes = np.empty(_WORDS, np.float32), np.empty((1, 2), np.int64)
    bounds = np.array([0, _WORDS])

    def seconds(call: Callable[[], object]) -> float:
        return max(best_of(_REPEATS, call)[0], 1e-6)

    read_s = seconds(lambda: active.compact(empty, bounds, 1, index, values, sizes))
    compact_s = seconds(lambda: active.compact(some, bounds, 1, index, values, sizes))
    index_end, value_end = sizes[0].tolist()
    own = kernels.SparseParts(
        index[:index_end], np.array([0, index_end]), values[:value_end], np.array([0, value_end])
    )
    place_s = seconds(lambda: active.place_sum(own, 1, some))
    add_s = seconds(lambda: np.add(empty, some, out=empty))
    moved = 2 * int(sizes[0, 1])
    return KernelSpeeds(_WORDS / read_s, moved / max(compact_s - read_s + place_s, 1e-6), _WORDS / add_s)
