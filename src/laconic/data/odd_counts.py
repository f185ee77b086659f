"""Counts of values that a source had to replace, by column; importable without pyarrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["Odd", "OddCounts", "odd_line", "total_counts"]


@dataclass(frozen=True, slots=True)
class OddCounts:
    """Numbers of values in one column that were replaced."""

    name: str

    null: int
    """Nulls. A null number is 0 after the transform, a null id goes to the row for unknown values,
    and a null bag is empty."""

    nan: int
    """NaN, which is 0 after the transform."""

    infinite: int
    """Infinite values, and values that float32 cannot hold after the transform; they become 0."""

    negative: int
    """Negative values before a logarithm, which takes them for 0."""

    @property
    def any(self) -> bool:
        """Whether any value was replaced."""
        return bool(self.null or self.nan or self.infinite or self.negative)

    def __add__(self, other: OddCounts) -> OddCounts:
        return OddCounts(
            self.name,
            self.null + other.null,
            self.nan + other.nan,
            self.infinite + other.infinite,
            self.negative + other.negative,
        )

    def line(self) -> str:
        """Write the counts in one line."""
        found = {"null": self.null, "NaN": self.nan, "infinite": self.infinite, "negative": self.negative}
        return f"{self.name}: {', '.join(f'{count:,} {what}' for what, count in found.items() if count)}"


Groups = Mapping[int, Sequence[OddCounts]]
"""Counts of columns that have any, by row group."""


@runtime_checkable
class Odd(Protocol):
    """A source that counts replaced values as it reads."""

    def odd_values(self) -> dict[int, tuple[OddCounts, ...]]:
        """Return the columns with replaced values, by row group that was read so far."""
        ...


def total_counts(*parts: Groups) -> tuple[OddCounts, ...]:
    """Add up counts by column; a row group that several parts have counts once."""
    found: dict[str, OddCounts] = {}
    for columns in {group: counts for part in parts for group, counts in part.items()}.values():
        for column in columns:
            found[column.name] = found[column.name] + column if column.name in found else column
    return tuple(found.values())


def odd_line(*parts: Groups) -> str | None:
    """Write what ranks replaced in one line; None if they replaced nothing."""
    columns = total_counts(*parts)
    if not columns:
        return None
    found = "; ".join(column.line() for column in columns)
    return f"data: values taken for 0, for unknown or for an empty bag: {found}"
