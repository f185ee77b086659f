"""Where one table lives and what it sends, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Choice", "Kind"]


@dataclass(frozen=True, slots=True)
class Kind:
    """What is chosen for a table but for numbers: rank and rows."""

    sharding: Literal["table", "row", "replicated"]
    send: Literal["rows", "pooled"] = "rows"
    cold: bool = False

    @property
    def can_have_hot_rows(self) -> bool:
        """Whether every rank may have copies of some rows: not where it has all, nor where owners pool."""
        return self.sharding != "replicated" and self.send == "rows"

    def __str__(self) -> str:
        words = {"table": "one rank", "row": "by rows", "replicated": "everywhere"}[self.sharding]
        return words + (", pooled" if self.send == "pooled" else "") + (", in files" if self.cold else "")


@dataclass(frozen=True, slots=True)
class Choice:
    """One table's place."""

    kind: Kind
    owner: int | None = None
    """Rank of a whole table."""

    hot: int = 0
    """Most frequent rows of which every rank has a copy."""

    warm: int = 0
    """Of a cold table, the most frequent rows behind the hot ones, which are in memory all the same."""

    def __str__(self) -> str:
        words = str(self.kind)
        if self.owner is not None:
            words = words.replace("one rank", f"rank {self.owner}")
        words += f", {self.warm:,} warm" if self.warm else ""
        return words + (f", {self.hot:,} hot" if self.hot else "")
