"""Vectors of several ranks whose sum a sketch must reproduce, and the protocol that adds and decodes them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic import Sketch
from laconic.errors import PeelingError

ROW = 64
MOST_SEEDS = 8


@dataclass
class Case:
    """What the ranks have; ``nonzeros`` positions are nonzero on at least one of them."""

    size: int
    nonzeros: int
    rows: bool
    dtype: str
    ranks: list[Tensor]
    total: Tensor
    """Their sum, int64."""

    def __str__(self) -> str:
        kind = "rows" if self.rows else "single entries"
        return f"{len(self.ranks)} ranks, {self.nonzeros} of {self.size} entries, {kind}, {self.dtype}"


def random_case(seed: int, largest: int = 5_000_000) -> Case:
    """Draw size and density log-uniformly: 1 to ``largest`` entries, 0.01 to 30 % of them nonzero, 1 to 16 ranks."""
    rng = np.random.default_rng(seed)
    size = int(np.exp(rng.uniform(0, np.log(largest))))
    density = float(np.exp(rng.uniform(np.log(1e-4), np.log(0.3))))
    rows, count = bool(rng.integers(2)), int(rng.integers(1, 17))
    dtype = "int64" if rng.integers(4) == 0 else "int32"
    support = rows_support(rng, size, density) if rows else single_support(rng, size, density)
    most = Sketch(0, cells=0, dtype=dtype).limit // 2 // count if rng.integers(2) else 127
    owner = rng.integers(count, size=len(support))
    share = float(rng.random())
    ranks, total = [], np.zeros(size, np.int64)
    for rank in range(count):
        mine = support[(owner == rank) | (rng.random(len(support), np.float32) < share)]
        values = rng.integers(-most, most, len(mine))
        values[values == 0] = most
        x = np.zeros(size, dtype)
        x[mine] = values
        total[mine] += values
        ranks.append(torch.from_numpy(x))
    return Case(size, len(support), rows, dtype, ranks, torch.from_numpy(total))


def single_support(rng: np.random.Generator, size: int, density: float) -> NDArray[np.int64]:
    return np.unique(rng.integers(size, size=max(1, round(size * density))))


def rows_support(rng: np.random.Generator, size: int, density: float) -> NDArray[np.int64]:
    """Whole rows of neighboring entries, as the gradient of an embedding table has them."""
    rows = -(-size // ROW)
    chosen = np.unique(rng.integers(rows, size=max(1, round(rows * density))))
    entries = (chosen[:, None] * ROW + np.arange(ROW)).reshape(-1)
    return entries[entries < size]


def summed_block(sketch: Sketch, ranks: list[Tensor]) -> Tensor:
    """Blocks added one by one, as a peer does."""
    total = sketch.encode(ranks[0])
    for x in ranks[1:]:
        total = sketch.add(total, sketch.encode(x))
    return total


def reduced_block(sketch: Sketch, ranks: list[Tensor]) -> Tensor:
    """Cells and index added apart and without any check, as an all-reduce or a switch does."""
    total = sketch.encode(ranks[0])
    cells, index = sketch.cells_and_index(total)
    for x in ranks[1:]:
        more_cells, more_index = sketch.cells_and_index(sketch.encode(x))
        cells += more_cells
        index |= more_index
    return total


def sum_by_sketch(case: Case, seed: int, add=summed_block) -> tuple[Tensor, int, Sketch]:
    """Return the decoded sum, how many seeds stalled before it, and the sketch that did not."""
    sketch = Sketch.for_union(case.size, case.nonzeros, seed=seed, dtype=case.dtype)
    for stalls in range(MOST_SEEDS):
        try:
            return sketch.decode(add(sketch, case.ranks), (case.size,), torch.int64), stalls, sketch
        except PeelingError:
            sketch = replace(sketch, seed=seed + stalls + 1)
    raise AssertionError(f"{MOST_SEEDS} seeds stalled: {case}")
