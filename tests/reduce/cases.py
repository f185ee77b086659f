"""Tensors of many ranks to be summed: sizes, densities, whole rows, same places or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

METHODS = ("auto", "dense", "gather", "owners")


@dataclass(frozen=True)
class Case:
    words: int
    density: float
    dtype: str
    run: int
    """Neighboring words that are there together."""
    identical: bool
    seed: int

    def tensor(self, rank: int) -> np.ndarray:
        """What one rank has; every rank can make those of all."""
        places = np.random.default_rng([self.seed, 0 if self.identical else rank])
        there = np.repeat(places.random(-(-self.words // self.run)) < self.density, self.run)[: self.words]
        values = np.random.default_rng([self.seed, 1, rank])
        dtype = np.dtype(self.dtype)
        x = np.zeros(self.words, dtype)
        count = int(there.sum())
        if dtype.kind == "i":
            x[there] = values.integers(-(2**20), 2**20, count)
        else:
            x[there] = values.standard_normal(count) * 10.0 ** values.integers(-6, 7, count)
            if count > 10:
                x[np.flatnonzero(there)[:4]] = [np.inf, -0.0, 1e-45, np.nan]
        return x

    def total(self, ranks: int) -> np.ndarray:
        """0 + x0 + x1 + ..., the specification."""
        with np.errstate(all="ignore"):
            total = np.zeros(self.words, self.dtype)
            for rank in range(ranks):
                total = total + self.tensor(rank)
        return total


def random_case(rng: np.random.Generator, most: int, dtypes: tuple[str, ...]) -> Case:
    return Case(
        words=int(np.exp(rng.uniform(0, np.log(most)))),
        density=float(np.exp(rng.uniform(np.log(1e-4), np.log(0.3)))),
        dtype=str(rng.choice(dtypes)),
        run=int(rng.choice([1, 1, 1, 16, 64])),
        identical=bool(rng.integers(2)),
        seed=int(rng.integers(2**31)),
    )


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    bits = f"u{b.itemsize}"
    same = a.view(bits) == b.view(bits)
    return bool((same | (np.isnan(a) & np.isnan(b))).all())
