"""What the golden blocks are made of: every form, mode and cast, as small as it can be."""

from __future__ import annotations

import torch
from torch import Tensor

from laconic import Bounded, BoundedRows, Cast, Huffman, Hybrid, IdList, Lossless, VectorLz
from laconic.codecs.codec import Codec


def cases() -> dict[str, tuple[Codec, Tensor]]:
    """Name, codec and input of each; the inputs are random and live on in files."""
    normal = torch.randn(12, 8)
    special = normal.clone()
    special[2, 3], special[4, 5], special[6, 7], special[0, 0] = float("nan"), float("inf"), -0.0, 1e30
    holes = normal.clone()
    holes[1, 2], holes[3, 4] = float("nan"), -float("inf")
    table = torch.randn(9, 8)
    skewed = table[(torch.rand(120) ** 3 * 9).long()]
    spiky = torch.randn(200, 8)
    spiky[50, 3] = 30.0
    return {
        "constant": (BoundedRows(0.1), torch.full((3, 4), 2.5)),
        "stored": (BoundedRows(1e-20), normal),
        "packed": (BoundedRows(0.02), torch.randint(0, 16, (5, 5)) * 0.1),
        "entropy_static": (BoundedRows(0.1), normal),
        "entropy_custom": (BoundedRows(0.02), torch.randint(0, 3, (60, 8)) * torch.tensor(0.7)),
        "entropy_pairs": (BoundedRows(0.3), torch.randn(60, 8)),
        "entropy_quads": (Bounded(0.6), torch.randn(90, 8) * (torch.rand(90, 8) < 0.06)),
        "outliers": (Bounded(0.5), spiky),
        "six_streams": (BoundedRows(0.02), torch.randn(60, 8)),
        "wide_codes": (BoundedRows(1e-4), normal),
        "far_from_zero": (BoundedRows(1e-3), normal * 0.01 + 100),
        "patches": (BoundedRows(0.02), special),
        "relative": (BoundedRows(0.03, relative_to="range"), normal),
        "relative_to_rms": (BoundedRows(0.1, relative_to="rms"), holes),
        "dithered": (BoundedRows(0.1, rounding="unbiased", seed=42), normal),
        "deduplicated": (BoundedRows(0.02), skewed),
        "two_rows": (BoundedRows(0.02), table[(torch.rand(200) < 0.1).long()]),
        "singles": (BoundedRows(0.02), torch.cat([table, torch.randn(20, 8), table])),
        "flat": (Bounded(0.02), skewed.view(-1)),
        "vector_lz": (VectorLz(0.02), skewed),
        "huffman": (Huffman(0.2), skewed),
        "hybrid": (Hybrid(0.02), skewed),
        "fp32": (Cast("fp32"), special),
        "fp16": (Cast("fp16"), special),
        "bf16": (Cast("bf16"), special),
        "int8": (Cast("int8"), normal),
        "int4": (Cast("int4"), torch.randn(5, 7)),
        "ids_ascending": (IdList(), torch.unique(torch.randint(0, 10**5, (300,)))),
        "ids_differences": (IdList(), torch.cumsum(torch.randint(-50, 60, (200,)), 0) * 1000),
        "ids_offsets": (IdList(), torch.randint(-50, 1000, (150,))),
        "ids_stored": (IdList(), torch.randint(-(2**63), 2**63 - 1, (4,))),
        "lossless_constant": (Lossless(), torch.full((2, 3), -0.0)),
        "lossless_stored": (Lossless(), torch.tensor([[1.5, float("nan"), -0.0, 1e-45]])),
        "lossless_full": (Lossless(), torch.randn(60, 8)),
        "lossless_special": (Lossless(), special),
        "lossless_packed": (Lossless(), torch.randint(0, 2, (5, 7)) * 2.0 - 1.0),
        "lossless_sparse": (Lossless(), torch.where(torch.rand(90, 1) < 0.3, torch.randn(90, 9), 0.0)),
    }
