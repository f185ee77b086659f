"""Counts of values that a source had to replace, by column; importable without pyarrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["Odd", "OddCounts", "odd_line"]


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

    def line(self) -> str:
        """Write the counts in one line."""
        found = {"null": self.null, "NaN": self.nan, "infinite": self.infinite, "negative": self.negative}
        return f"{self.name}: {', '.join(f'{count:,} {what}' for what, count in found.items() if count)}"


@runtime_checkable
class Odd(Protocol):
    """A source that counts replaced values as it reads."""

    def odd_values(self) -> tuple[OddCounts, ...]:
        """Return the columns with replaced values so far; a row that is read twice counts once."""
        ...


def odd_line(source: object) -> str | None:
    """Write what a source replaced in one line; None if it replaced nothing or does not count."""
    columns = source.odd_values() if isinstance(source, Odd) else ()
    if not columns:
        return None
    found = "; ".join(column.line() for column in columns)
    return f"data: values taken for 0, for unknown or for an empty bag: {found}"
