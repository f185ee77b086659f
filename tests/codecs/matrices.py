"""Matrices to try codecs on: strategies for hypothesis, and named awkward ones."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

_EDGES = [
    0.0,
    -0.0,
    float("nan"),
    float("inf"),
    -float("inf"),
    1e-45,
    -1e-45,
    1e-38,
    3e38,
    -3e38,
    1.0,
    -1.0,
    0.5,
]

_any_float = st.one_of(
    st.sampled_from(_EDGES),
    st.floats(width=32),
    st.integers(0, 2**32 - 1).map(lambda bits: float(np.uint32(bits).view(np.float32))),
    st.floats(-1, 1, width=32),
)


@st.composite
def matrices(draw: st.DrawFn) -> Tensor:
    """A matrix of any float32 bits, its rows often repeated, some values often planted."""
    rows, cols = draw(st.integers(0, 40)), draw(st.integers(0, 24))
    distinct = draw(st.integers(1, max(1, rows)))
    scale = draw(st.sampled_from([0.0, 1e-42, 1e-20, 1e-3, 1.0, 40.0, 1e6, 1e30]))
    seed = draw(st.integers(0, 2**16))
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(distinct, cols, generator=generator) * scale
    x = table[torch.randint(0, distinct, (rows,), generator=generator)]
    if x.numel():
        for _ in range(draw(st.integers(0, 6))):
            x.view(-1)[draw(st.integers(0, x.numel() - 1))] = draw(_any_float)
    return x


raw_matrices = hnp.arrays(
    np.uint32,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=20),
    elements=st.integers(0, 2**32 - 1),
).map(lambda bits: torch.from_numpy(bits.view(np.float32).copy()))

bounds = st.sampled_from(
    [1e-300, 1e-45, 1e-38, 1e-30, 1e-10, 1e-4, 0.01, 0.03, 0.3, 1.0, 100.0, 1e10, 1e30, 3e38, 1e300]
)


@cache
def awkward() -> dict[str, Tensor]:
    """Matrices that have broken codecs before, or look as if they could."""
    torch.manual_seed(5)
    normal = torch.randn(300, 16)
    sparse = torch.randn(400, 32) * (torch.rand(400, 32) < 0.03)
    with_specials = normal.clone()
    with_specials[3, 2], with_specials[3, 3], with_specials[250, 1] = (
        float("nan"),
        float("inf"),
        -float("inf"),
    )
    one_outlier = normal.clone() * 1e-3
    one_outlier[100, 7] = 1e30
    table = torch.randn(50, 16)
    return {
        "empty": torch.empty(0, 16),
        "no columns": torch.empty(7, 0),
        "one value": torch.tensor([[0.3]]),
        "one row": normal[:1],
        "one column": normal[:, :1].contiguous(),
        "constant": torch.full((9, 5), 0.123),
        "all NaN": torch.full((9, 5), float("nan")),
        "zeros of both signs": torch.tensor([[0.0, -0.0], [-0.0, 0.0]]),
        "subnormal": normal * 1e-41,
        "huge": normal * 1e37,
        "normal": normal,
        "specials": with_specials,
        "outlier": one_outlier,
        "sparse": sparse,
        "far from zero": normal * 1e-3 + 1000,
        "repeated rows": table[torch.randint(0, 50, (500,))],
        "two rows": table[torch.randint(0, 2, (700,))],
        "integers": torch.randint(-5, 6, (200, 8)).float(),
        "heavy tail": torch.randn(500, 16) / torch.randn(500, 16).abs().clamp_min(1e-3),
        "ramp": torch.linspace(-1, 1, 4096).view(64, 64),
        "several chunks": torch.randn(1200, 64),
        "several chunks of repeated rows": torch.randn(900, 64)[torch.randint(0, 900, (2500,))],
    }
