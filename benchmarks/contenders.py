"""Who takes part in which case, in the order of the tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import ours, peers
from benchmarks.case import Case
from benchmarks.timing import Trial

OURS = "BoundedRows"
ZSTD_1 = "quantize+zstd-1"
EXACT_ZSTD_1 = "zstd-1, exact"
ONE_BLOCK = ", one block"


@dataclass(frozen=True, slots=True)
class Contender:
    """A codec by name."""

    name: str

    prepare: Callable[[Case], Trial]
    """Sets it up for a case; ``ImportError`` if it is not installed."""

    yardstick: str = ZSTD_1
    """The contender that its speed is compared with."""


MATRIX = (
    Contender(OURS, ours.bounded_rows),
    Contender("VectorLz", ours.vector_lz),
    Contender("Huffman", ours.huffman),
    Contender("Hybrid", ours.hybrid),
    Contender("SZ3", peers.sz3),
    Contender("ZFP", peers.zfp),
    Contender(ZSTD_1, peers.zstd(1)),
    Contender("quantize+zstd-3", peers.zstd(3)),
    Contender("quantize+LZ4", peers.lz4),
    Contender("quantize+Blosc2", peers.blosc2),
    Contender("FBGEMM int8", peers.fbgemm_int8),
    Contender("fp16", peers.fp16),
    Contender("Lossless", ours.lossless, EXACT_ZSTD_1),
    Contender(EXACT_ZSTD_1, peers.zstd_exact(1), EXACT_ZSTD_1),
    Contender("memcpy", peers.memcpy),
)

DITHERED = Contender(OURS + ", dithered", ours.dithered_rows)

MANY_BLOCKS = (
    Contender(OURS, ours.block_batch),
    Contender(OURS + ONE_BLOCK, ours.bounded_rows, ZSTD_1 + ONE_BLOCK),
    Contender(ZSTD_1, peers.zstd_blocks(1)),
    Contender(ZSTD_1 + ONE_BLOCK, peers.zstd(1), ZSTD_1 + ONE_BLOCK),
)


def contenders_for(case: Case) -> tuple[Contender, ...]:
    """Everybody who takes part, ours first."""
    if case.blocks > 1:
        return MANY_BLOCKS
    return MATRIX if case.dither is None else (MATRIX[0], DITHERED, *MATRIX[1:])
