"""What a source says of values that it took for something else; without pyarrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["Odd", "OddCounts", "odd_line"]


@dataclass(frozen=True, slots=True)
class OddCounts:
    """Values of one column that were taken for something else."""

    name: str

    null: int
    """Nulls: 0 of a dense feature after its transform, the row for unknown values of a table, an empty bag."""

    nan: int
    """NaN: 0 after the transform."""

    infinite: int
    """Infinite values, and those that float32 cannot hold after the transform: 0 then."""

    negative: int
    """Negative values before a logarithm, which takes them for 0."""

    def line(self) -> str:
        """Say it in one line."""
        found = {"null": self.null, "NaN": self.nan, "infinite": self.infinite, "negative": self.negative}
        return f"{self.name}: {', '.join(f'{count:,} {what}' for what, count in found.items() if count)}"


@runtime_checkable
class Odd(Protocol):
    """A source that counts such values as it reads."""

    def odd_values(self) -> tuple[OddCounts, ...]:
        """Columns in which there were any so far; every row counts once, however often it was read."""
        ...


def odd_line(source: object) -> str | None:
    """Say in one line what a source took for something else; None where there was nothing, or nobody counts."""
    columns = source.odd_values() if isinstance(source, Odd) else ()
    if not columns:
        return None
    found = "; ".join(column.line() for column in columns)
    return f"data: values taken for 0, for unknown or for an empty bag: {found}"
