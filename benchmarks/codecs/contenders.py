"""The codecs that are compared, each used as its users would, in the order of the tables.

Peers are told the absolute bound and the type that holds their codes. So they spend no time on the
range of the data and no bytes on the step. ``ImportError`` means that a peer is absent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from benchmarks.codecs.cases import Case
from benchmarks.timing import Trial
from laconic.codecs import Batch, BoundedRows, Huffman, Hybrid, Lossless, VectorLz
from laconic.codecs.codec import Codec

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


def bounded(codec: Callable[..., Codec]) -> Callable[[Case], Trial]:
    """Use a codec of Laconic's that keeps a bound."""
    return lambda case: _ours(case, codec(_bound(case), relative_to=_relative_to(case)))


def unbiased_rows(case: Case) -> Trial:
    """Round without bias; half the step, so about one bit more per value."""
    unbiased = BoundedRows(
        _bound(case), relative_to=_relative_to(case), rounding="unbiased", seed=case.seed or 0
    )
    return _ours(case, unbiased)


def lossless(case: Case) -> Trial:
    """Keep every bit; the bound is of no consequence."""
    return _ours(case, Lossless())


def block_batch(case: Case) -> Trial:
    """Encode equal blocks in one native call; the batch is made once, as it is in training."""
    codec = BoundedRows(case.bound)
    shape = (case.rows // case.blocks, case.dim)
    batch = Batch.of([(codec, shape)] * case.blocks)
    values = case.values_RD.reshape(-1)
    return Trial(
        encode=lambda: batch.encode(values),
        decode=lambda payload: batch.decode(*payload).reshape(case.rows, case.dim),
        size=lambda payload: int(payload[1][-1]),
    )


def _bound(case: Case) -> float:
    return case.asked if case.relative else case.bound


def _relative_to(case: Case) -> Literal["range"] | None:
    return "range" if case.relative else None


def _ours(case: Case, codec: Codec) -> Trial:
    values_RD, shape = case.values_RD, (case.rows, case.dim)
    return Trial(
        encode=lambda: codec.encode(values_RD), decode=lambda block: codec.decode(block, shape), size=_bytes
    )


def _bytes(block: torch.Tensor) -> int:
    return block.numel() * block.element_size()


def sz3(case: Case) -> Trial:
    """SZ3 with its default predictor and an absolute bound."""
    from pysz import sz, szConfig, szErrorBoundMode

    x, shape = case.values_RD.numpy(), (case.rows, case.dim)
    config = szConfig(shape)
    config.errorBoundMode = szErrorBoundMode.ABS
    config.absErrorBound = case.bound
    return Trial(
        encode=lambda: sz.compress(x, config)[0],
        decode=lambda payload: sz.decompress(payload, np.float32, shape)[0],
    )


def zfp(case: Case) -> Trial:
    """ZFP in fixed-accuracy mode."""
    import zfpy

    x = case.values_RD.numpy()
    return Trial(encode=lambda: zfpy.compress_numpy(x, tolerance=case.bound), decode=zfpy.decompress_numpy)


def zstd(case: Case, level: int) -> Trial:
    """Quantize with numpy, compress with zstandard."""
    import zstandard

    compress = zstandard.ZstdCompressor(level=level).compress
    return _quantized(case, compress, zstandard.ZstdDecompressor().decompress)


def zstd_exact(case: Case) -> Trial:
    """Compress float32 as they are."""
    import zstandard

    compress: Callable[[Any], bytes] = zstandard.ZstdCompressor(level=1).compress
    decompress = zstandard.ZstdDecompressor().decompress
    x = case.values_RD.numpy()
    return Trial(
        encode=lambda: compress(x),
        decode=lambda payload: np.frombuffer(decompress(payload), np.float32).reshape(x.shape),
    )


def zstd_blocks(case: Case) -> Trial:
    """Quantize and compress each block of a case in turn."""
    import zstandard

    compress: Callable[[Any], bytes] = zstandard.ZstdCompressor(level=1).compress
    decompress = zstandard.ZstdDecompressor().decompress
    x_BRD = case.values_RD.numpy().reshape(case.blocks, -1, case.dim)
    codes, step, inverse = _grid(case)
    shape = x_BRD.shape[1:]

    def decode(payload: list[bytes]) -> Any:
        parts = [np.frombuffer(decompress(part), codes).reshape(shape) * step for part in payload]
        return np.concatenate(parts)

    return Trial(
        encode=lambda: [compress(np.rint(x * inverse).astype(codes)) for x in x_BRD],
        decode=decode,
        size=lambda payload: sum(map(len, payload)),
    )


def lz4(case: Case) -> Trial:
    """Quantize with numpy, compress with LZ4."""
    import lz4.block

    return _quantized(case, lz4.block.compress, lz4.block.decompress)


def blosc2(case: Case) -> Trial:
    """Quantize with numpy, compress with Blosc2 as it comes, on one thread."""
    import blosc2

    compress = blosc2.CParams(typesize=_grid(case)[0].itemsize, nthreads=1)
    decompress = blosc2.DParams(nthreads=1)
    return _quantized(
        case,
        lambda codes: blosc2.compress2(codes, cparams=compress),
        lambda payload: blosc2.decompress2(payload, dparams=decompress),
    )


def fbgemm_int8(case: Case) -> Trial:
    """FBGEMM's row-wise int8, scale and offset in float32; no bound."""
    import fbgemm_gpu  # noqa: F401  registers torch.ops.fbgemm

    values_RD = case.values_RD
    return Trial(
        encode=lambda: torch.ops.fbgemm.FloatToFused8BitRowwiseQuantized(values_RD),
        decode=torch.ops.fbgemm.Fused8BitRowwiseQuantizedToFloat,
        size=lambda payload: payload.numel() * payload.element_size(),
    )


def fp16(case: Case) -> Trial:
    """Use half precision, which keeps no bound."""
    values_RD = case.values_RD
    return Trial(encode=values_RD.half, decode=lambda payload: payload.float(), size=lambda p: 2 * p.numel())


def memcpy(case: Case) -> Trial:
    """Copy, as fast as memory allows."""
    values_RD = case.values_RD
    return Trial(encode=values_RD.clone, decode=lambda payload: payload.clone(), size=lambda p: 4 * p.numel())


def _quantized(
    case: Case, compress: Callable[[Any], bytes], decompress: Callable[[bytes], bytes | bytearray]
) -> Trial:
    """Do what anybody writes in three lines."""
    x = case.values_RD.numpy()
    codes, step, inverse = _grid(case)
    return Trial(
        encode=lambda: compress(np.rint(x * inverse).astype(codes)),
        decode=lambda payload: np.frombuffer(decompress(payload), codes).reshape(x.shape) * step,
    )


def _grid(case: Case) -> tuple[np.dtype[Any], np.float32, np.float32]:
    """Type of the codes, the step and its inverse.

    int8, as anybody would write, while at most one value in a million wraps around and shows as an
    error above the bound; otherwise the narrowest type that holds all codes.
    """
    sizes = np.abs(case.values_RD.numpy()) / np.float32(2 * case.bound)
    codes = np.min_scalar_type(-int(np.rint(sizes.max())) - 1)
    if np.count_nonzero(sizes > 127.5) <= sizes.size // 1_000_000:
        codes = np.dtype(np.int8)
    return codes, np.float32(2 * case.bound), np.float32(1 / (2 * case.bound))


MATRIX = (
    Contender(OURS, bounded(BoundedRows)),
    Contender("VectorLz", bounded(VectorLz)),  # the LZ of the SC'24 paper, whose symbol is a row
    Contender("Huffman", bounded(Huffman)),  # its entropy coder
    Contender("Hybrid", bounded(Hybrid)),  # whichever of the two pays more
    Contender("SZ3", sz3),
    Contender("ZFP", zfp),
    Contender(ZSTD_1, partial(zstd, level=1)),
    Contender("quantize+zstd-3", partial(zstd, level=3)),
    Contender("quantize+LZ4", lz4),
    Contender("quantize+Blosc2", blosc2),
    Contender("FBGEMM int8", fbgemm_int8),
    Contender("fp16", fp16),
    Contender("Lossless", lossless, EXACT_ZSTD_1),
    Contender(EXACT_ZSTD_1, zstd_exact, EXACT_ZSTD_1),
    Contender("memcpy", memcpy),
)

UNBIASED = Contender(OURS + ", unbiased", unbiased_rows)

MANY_BLOCKS = (
    Contender(OURS, block_batch),
    Contender(OURS + ONE_BLOCK, bounded(BoundedRows), ZSTD_1 + ONE_BLOCK),
    Contender(ZSTD_1, zstd_blocks),
    Contender(ZSTD_1 + ONE_BLOCK, partial(zstd, level=1), ZSTD_1 + ONE_BLOCK),
)


def contenders_for(case: Case) -> tuple[Contender, ...]:
    """Everybody who takes part, ours first."""
    if case.blocks > 1:
        return MANY_BLOCKS
    return MATRIX if case.seed is None else (MATRIX[0], UNBIASED, *MATRIX[1:])
