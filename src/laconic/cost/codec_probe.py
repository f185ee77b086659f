"""What codecs cost on the rows at hand: each candidate of each table, timed and weighed.

A table is timed alone, on one thread, and the price of the call itself is taken off: in an exchange all
tables share one call, whose blocks are divided among threads. Shape legend: ``T`` tables, ``R`` rows, ``D``
dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.codecs.batch import Batch, BlockCodec
from laconic.cost.link import CodecCost
from laconic.errors import ConfigError

__all__ = ["codec_costs"]

_REPEATS = 3
_LEAST_S = 2e-6  # below this a clock and a call tell nothing


def codec_costs(
    rows_TRD: Sequence[NDArray[np.float32]],
    candidates_T: Sequence[Sequence[BlockCodec | None]],
    destinations_T: Sequence[int],
) -> tuple[tuple[CodecCost | None, ...], ...]:
    """Time the candidates of each table on the rows that go to one other rank, for all that get as many.

    ``Cast(dtype="fp32")`` stands for rows as they are, which is what it makes of them next to tables that are
    coded. None is a candidate that is not offered, and has no cost.
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
    """Seconds to encode and to decode, and bytes between."""
    rows = torch.from_numpy(rows_RD)
    batch = Batch.of([(codec, tuple(rows.shape))])
    room, values = torch.empty(batch.max_bytes, dtype=torch.uint8), torch.empty(batch.values)
    encode_s, (data, offsets) = _timed(lambda: batch.encode(rows, out=room, threads=1))
    decode_s, _ = _timed(lambda: batch.decode(data, offsets, out=values, threads=1))
    return encode_s, decode_s, len(data)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Best time of several calls, and what they return."""
    times = []
    for _ in range(_REPEATS):
        start = perf_counter()
        result = call()
        times.append(perf_counter() - start)
    return min(times), result
