"""Data that the benchmark makes itself, the same on every machine.

========================= ====================================================================
case                      why
========================= ====================================================================
normal table              no row twice, nothing to find but the entropy of the codes
Zipf lookups              what a step asks an embedding table for; and its distinct rows
heavy-tailed gradients    what comes back: a range-relative bound would zero nearly all of it
many small blocks         what an exchange between many ranks and tables is made of
========================= ====================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.case import ABSOLUTE, OF_RANGE, OF_RMS, Case, distinct_rows, relative_case

TABLE_ROWS = 36_084  # as Criteo Terabyte's table 1, whose lookups the Zipf case resembles
ZIPF_EXPONENT = 1.05
INITIAL_SCALE = 0.003
NORMAL_ROWS, QUICK_ROWS = 1_000_000, 65_536
DIM = 64

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Generator:
    """Cases that cost memory and time only when they are asked for."""

    name: str
    rows: int
    dim: int
    cases: Callable[[], list[Case]]


def generators(*, quick: bool) -> list[Generator]:
    """Everything the benchmark makes itself, in the order it is shown."""
    rows = QUICK_ROWS if quick else NORMAL_ROWS
    return [
        Generator("normal table", rows, DIM, lambda: [normal_table(rows)]),
        Generator("Zipf lookups", 2048, DIM, zipf_lookups),
        Generator("heavy-tailed gradients", 8192, DIM, lambda: [heavy_tailed_gradients(8192)]),
        Generator("small blocks", 16_000, 32, lambda: [normal_blocks(1000), trained_blocks(1000)]),
    ]


def normal_table(rows: int) -> Case:
    """Make standard normal values, bound 0.02."""
    values_RD = np.random.default_rng(1).standard_normal((rows, DIM), dtype=np.float32)
    return Case("normal table", torch.from_numpy(values_RD), 0.02, ABSOLUTE, 0.02)


def zipf_lookups(rows: int = 2048) -> list[Case]:
    """Look up a batch, and take its distinct rows."""
    random = np.random.default_rng(2)
    table_RD = trained_rows(random, TABLE_ROWS, DIM)
    odds_R = 1.0 / np.arange(1, TABLE_ROWS + 1) ** ZIPF_EXPONENT
    ids = random.choice(TABLE_ROWS, size=rows, p=odds_R / odds_R.sum())
    whole = relative_case("Zipf lookups", torch.from_numpy(table_RD[ids]), 0.03)
    return [whole, distinct_rows(whole)]


def trained_rows(random: np.random.Generator, rows: int, dim: int) -> Floats:
    """Make rows like those of a trained table: normal within a row, the scale grows with popularity.

    Row 0 is the most popular. The constants follow the Terabyte dump: row scales from 0.003
    (never updated) to 0.035, log-normal around a median that rises as the fourth root of popularity.
    """
    popularity_R = (1.0 + np.arange(rows)) ** -0.25
    learned_R = 0.035 * popularity_R * random.lognormal(0.0, 0.4, rows)
    scale_R1 = (INITIAL_SCALE + learned_R).astype(np.float32)[:, None]
    return random.standard_normal((rows, dim), dtype=np.float32) * scale_R1


def heavy_tailed_gradients(rows: int) -> Case:
    """Student t with three degrees of freedom, log-normal rows, 70 % of them next to zero; half the RMS."""
    random = np.random.default_rng(3)
    scale_R1 = random.lognormal(0.0, 1.0, (rows, 1)) * np.where(random.random((rows, 1)) < 0.7, 1e-3, 1.0)
    values_RD = (1e-4 * scale_R1 * random.standard_t(3, (rows, DIM))).astype(np.float32)
    rms = float(np.sqrt(np.mean(np.square(values_RD, dtype=np.float64))))
    return Case(
        "heavy-tailed gradients", torch.from_numpy(values_RD), 0.5, OF_RMS, 0.5 * rms, dither=20_240_817
    )


def normal_blocks(blocks: int, rows: int = 16, dim: int = 32) -> Case:
    """Make standard normal values in blocks of 16 x 32, to be encoded in one call or as one block."""
    values_RD = np.random.default_rng(5).standard_normal((blocks * rows, dim), dtype=np.float32)
    name = f"{blocks:,} normal blocks of {rows} x {dim}"
    return Case(name, torch.from_numpy(values_RD), 0.02, ABSOLUTE, 0.02, blocks=blocks)


def trained_blocks(blocks: int, rows: int = 16, dim: int = 32) -> Case:
    """Make distinct trained rows in blocks of 16 x 32: a third of the bits of normal ones, so less to share."""
    values_RD = torch.from_numpy(trained_rows(np.random.default_rng(4), blocks * rows, dim))
    low, high = (float(v) for v in torch.aminmax(values_RD))
    name = f"{blocks:,} trained blocks of {rows} x {dim}"
    return Case(name, values_RD, 0.03, OF_RANGE, 0.03 * (high - low), blocks=blocks)
