"""What a sample consists of: dense features and categorical ones, each with its number of rows.

Shape legend: ``B`` samples, ``F`` dense features.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from torch import Tensor

from laconic.errors import ConfigError
from laconic.lookups import Lookups

__all__ = ["Categorical", "Samples", "Schema"]


@dataclass(frozen=True, slots=True)
class Categorical:
    """A feature that is looked up in an embedding table of its own."""

    name: str

    rows: int
    """Rows of its table; every id is in [0, rows). An extra row for unknown ids is counted."""

    bag: bool = False
    """Whether a sample has any number of ids, none included, rather than exactly one."""

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ConfigError(f"schema: {self.name!r} needs at least one row, got {self.rows}")


@dataclass(frozen=True, slots=True)
class Schema:
    """Names and sizes of all features, in the order in which samples hold them."""

    dense: tuple[str, ...]
    categorical: tuple[Categorical, ...]

    def __post_init__(self) -> None:
        if not self.categorical:
            raise ConfigError("schema: expected at least one categorical feature, got none")
        names = [*self.dense, *(feature.name for feature in self.categorical)]
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise ConfigError(f"schema: names must differ, got more than one {', '.join(map(repr, twice))}")

    @property
    def tables(self) -> int:
        """Number of categorical features."""
        return len(self.categorical)

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of every table."""
        return tuple(feature.rows for feature in self.categorical)

    @property
    def total_rows(self) -> int:
        """Rows of all tables together."""
        return sum(self.rows)

    @property
    def has_bags(self) -> bool:
        """Whether any feature may have other than one id."""
        return any(feature.bag for feature in self.categorical)


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Any number of samples, none included: shapes hold then too."""

    label_B: Tensor
    """float32, 0 or 1."""

    dense_BF: Tensor
    """float32, finite."""

    lookups: Lookups
    """One table for every categorical feature of the schema, in its order; ids are in [0, rows)."""

    def __len__(self) -> int:
        return int(self.label_B.shape[0])
