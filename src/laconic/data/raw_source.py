"""How raw values of samples become what a source yields: what a served model needs to take raw values itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from laconic.data.value_index import Values

__all__ = ["Kind", "RawCategories", "RawNumbers", "RawSource", "RawValues"]

Kind = Literal["integer", "text", "hexadecimal"]


class RawNumbers(Protocol):
    """A logarithm or not, then ``(x - mean) / deviation``."""

    @property
    def column(self) -> str:
        """Name of the feature."""
        ...

    @property
    def log1p(self) -> bool:
        """Whether ``log(1 + max(x, 0))`` comes first."""
        ...

    @property
    def mean(self) -> float:
        """What is subtracted."""
        ...

    @property
    def deviation(self) -> float:
        """What it is divided by then."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class RawCategories:
    """Raw values of a table, which are hashed or listed."""

    values: Kind

    vocabulary: Values | None
    """Known values in the order of their ids; None: all are hashed."""


@dataclass(frozen=True, slots=True, eq=False)
class RawValues:
    """Raw values of all features."""

    dense: tuple[RawNumbers, ...] | None
    """Transforms of raw numbers; None where nobody wrote down what was made of them."""

    categories: dict[str, RawCategories]
    """By table. Of a table that is not here, raw values are ids, or not known."""


@runtime_checkable
class RawSource(Protocol):
    """A source of samples that were raw values once."""

    def raw_values(self) -> RawValues:
        """Say how raw values become samples; may read vocabularies."""
        ...
