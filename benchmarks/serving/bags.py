"""The kernel by itself: bags of 32 from one table that is larger than the cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from benchmarks.serving.row import Row
from benchmarks.serving.steps import Steps
from benchmarks.timing import time_calls
from laconic import kernels
from laconic.quantize.formats import RowFormat, quantize_rows

__all__ = ["PARTS", "measure_bags"]

_DIM, _BAG, _SAMPLES = 64, 32, 256
_FORMATS = (RowFormat.FP32, RowFormat.INT8, RowFormat.INT4)

PARTS = 2 + len(_FORMATS)
"""Steps of the measurement."""


def measure_bags(rows: int, rounds: int, steps: Steps) -> list[Row]:
    """Time torch's EmbeddingBag in fp32, and our kernel in fp32, int8 and int4, on ids that are drawn evenly."""
    steps.begin(f"bags: drawing {rows:,} rows")
    table_RD = torch.empty(rows, _DIM).normal_(0, 0.05)
    native = kernels.active()
    offsets = torch.arange(0, _SAMPLES * _BAG + 1, _BAG)
    ids = [torch.randint(0, rows, (_SAMPLES * _BAG,)) for _ in range(64)]
    out = np.empty((_SAMPLES, 1, _DIM), np.float32)

    def eager(i: int) -> object:
        with torch.inference_mode():
            return torch.nn.functional.embedding_bag(
                ids[i % 64], table_RD, offsets, mode="sum", include_last_offset=True
            )

    calls: dict[str, Callable[[int], object]] = {"fp32": eager}
    sizes = {"fp32": 4 * table_RD.numel()}
    for format in _FORMATS:
        steps.begin(f"bags: quantizing to {format}")
        packed = quantize_rows(table_RD, format)
        held = native.row_tables(_DIM)
        held.add(packed.numpy(), format.code)
        name = f"laconic {format}"
        sizes[name] = packed.numel()
        calls[name] = lambda i, held=held: native.embedding_bags(  # type: ignore[misc]
            held, ids[i % 64].numpy(), offsets.numpy(), None, False, None, out, 0, 1
        )
    steps.begin("bags: timing")
    seconds = time_calls(calls, rounds=rounds, turn_s=0.3, tell=steps.within)
    return [
        Row.of_times(
            times,
            engine=name,
            model=f"bags of {_BAG}, {rows:,} x {_DIM}",
            batch=_SAMPLES,
            size_bytes=sizes[name],
        )
        for name, times in seconds.items()
    ]
