"""Laconic's codecs as trials."""

from __future__ import annotations

import torch

from benchmarks.case import Case
from benchmarks.timing import Trial
from laconic.codecs import Batch, BoundedRows, Huffman, Hybrid, Lossless, VectorLz
from laconic.codecs.codec import Codec


def bounded_rows(case: Case) -> Trial:
    """Quantize, de-duplicate, entropy-code."""
    return _trial(case, BoundedRows(bound=_bound(case), relative=case.relative))


def dithered_rows(case: Case) -> Trial:
    """Round without bias; half the step, so about one bit more per value."""
    return _trial(case, BoundedRows(bound=_bound(case), relative=case.relative, dither=case.dither))


def vector_lz(case: Case) -> Trial:
    """Run the LZ of the SC'24 paper, whose symbol is a row."""
    return _trial(case, VectorLz(bound=_bound(case), relative=case.relative))


def huffman(case: Case) -> Trial:
    """Run the entropy coder of the SC'24 paper."""
    return _trial(case, Huffman(bound=_bound(case), relative=case.relative))


def hybrid(case: Case) -> Trial:
    """Run whichever of the two pays more, as in the paper."""
    return _trial(case, Hybrid(bound=_bound(case), relative=case.relative))


def lossless(case: Case) -> Trial:
    """Keep every bit; the bound is of no consequence."""
    return _trial(case, Lossless())


def block_batch(case: Case) -> Trial:
    """Encode equal blocks in one native call; the batch is made once, as it is in training."""
    codec = BoundedRows(bound=case.bound, relative=False)
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


def _trial(case: Case, codec: Codec) -> Trial:
    values_RD, shape = case.values_RD, (case.rows, case.dim)
    return Trial(
        encode=lambda: codec.encode(values_RD), decode=lambda block: codec.decode(block, shape), size=_bytes
    )


def _bytes(block: torch.Tensor) -> int:
    return block.numel() * block.element_size()
