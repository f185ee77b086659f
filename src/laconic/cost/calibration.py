"""What the bounded codec does on this machine, in five figures: the simulator scales them to any number of ranks.

With many ranks blocks become small, so the price of a block counts as well as that of a row; both are fitted to
one call with few large blocks and one with many small ones, on one thread. Rows are normal: trained rows and gradients that repeat, or have
few scales, become smaller than these. Shape legend: ``R`` rows, ``D`` dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch

from laconic import kernels
from laconic.codecs import Bounded, BoundedRows
from laconic.codecs.batch import Batch
from laconic.errors import ConfigError

__all__ = ["CodecFigures", "measure_codec", "measure_dense"]

_ROWS = 8192
_LARGE, _SMALL = 2048, 4  # rows of a block
_REPEATS = 5
_DENSE_VALUES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class CodecFigures:
    """Bytes and seconds of rows and of blocks."""

    row_bytes: float
    block_bytes: float
    row_s: float
    """Of encoding and decoding a row."""
    block_s: float

    def __post_init__(self) -> None:
        if not all(
            0 <= value < float("inf")
            for value in (self.row_bytes, self.block_bytes, self.row_s, self.block_s)
        ):
            raise ConfigError(f"codec figures: expected finite numbers >= 0, got {self}")


def measure_codec(dim: int, codec: BoundedRows) -> CodecFigures:
    """Encode and decode normal rows, a tenth of a second or so."""
    rows_RD = torch.from_numpy(np.random.default_rng(0).standard_normal((_ROWS, dim)).astype(np.float32))
    (large_bytes, large_s), (small_bytes, small_s) = (
        _round_trip(codec, rows_RD, n) for n in (_LARGE, _SMALL)
    )
    large, small = _ROWS // _LARGE, _ROWS // _SMALL
    block_bytes = max(small_bytes - large_bytes, 0) / (small - large)
    block_s = max(small_s - large_s, 0.0) / (small - large)
    return CodecFigures(
        row_bytes=max(large_bytes - large * block_bytes, 0.0) / _ROWS,
        block_bytes=block_bytes,
        row_s=max(large_s - large * block_s, 0.0) / _ROWS,
        block_s=block_s,
    )


def measure_dense() -> tuple[float, float]:
    """Ratio of levels, as dense gradients travel, and seconds per byte of encoding once and decoding twice.

    The codec is that of ``reduce.ways.coded``: levels, entropy-coded as integers.
    """
    active = kernels.active()
    values = np.random.default_rng(0).standard_normal(_DENSE_VALUES).astype(np.float32)
    levels, bases, counts = np.empty_like(values), np.empty(1, np.int32), np.array([len(values)])
    batch = Batch.of([(Bounded(bound=0.45), values.shape)])
    encode_s, decode_s, nbytes = [], [], 0
    for _ in range(_REPEATS):
        start = perf_counter()
        active.to_levels(values, counts, levels, bases)
        data, offsets = batch.encode(torch.from_numpy(levels), threads=1)
        encoded = perf_counter()
        active.from_levels(batch.decode(data, offsets, threads=1).numpy(), counts, bases, levels)
        encode_s.append(encoded - start)
        decode_s.append(perf_counter() - encoded)
        nbytes = len(data)
    return values.nbytes / nbytes, (min(encode_s) + 2 * min(decode_s)) / values.nbytes


def _round_trip(codec: BoundedRows, rows_RD: torch.Tensor, block: int) -> tuple[int, float]:
    """Bytes, and the best time of several."""
    batch = Batch.of([(codec, (block, rows_RD.shape[1]))] * (len(rows_RD) // block))
    times, nbytes = [], 0
    for _ in range(_REPEATS):
        start = perf_counter()
        data, offsets = batch.encode(rows_RD.reshape(-1), threads=1)
        batch.decode(data, offsets, threads=1)
        times.append(perf_counter() - start)
        nbytes = len(data)
    return nbytes, min(times)
