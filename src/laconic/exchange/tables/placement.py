"""Which rows are kept twice, and where those of cold tables are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError

__all__ = ["RowPlacement"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RowPlacement:
    """Copies of rows and files for them; by default there are neither.

    >>> from laconic import RowPlacement
    >>> RowPlacement(hot={"user": [0, 3, 17]}, hot_every=4).hot_every
    4
    """

    hot: Mapping[str, Any] = field(default_factory=dict)
    """Ascending ids of rows, by table, of which every rank has a copy."""

    hot_every: int = 1
    """Steps after which copies of hot rows are made equal; 1: they always are."""

    warm: Mapping[str, Any] = field(default_factory=dict)
    """Ascending ids of rows of cold tables, by table, that stay in memory."""

    cold_folder: Path | str | None = None
    """Where this rank keeps the other rows of cold tables, in files that are gone when it ends."""

    look_ahead: bool = False
    """When a batch is prefetched, its rows that the one under way does not change travel at once,
    if they travel exactly. Prefetch before you compute."""

    def __post_init__(self) -> None:
        if self.hot_every < 1:
            raise ConfigError(f"placement.hot_every: expected at least 1, got {self.hot_every!r}")

    def without(self, names: Collection[str]) -> RowPlacement:
        """Return the same for all tables but those of these names."""
        hot = {name: ids for name, ids in self.hot.items() if name not in names}
        warm = {name: ids for name, ids in self.warm.items() if name not in names}
        kept: dict[str, Any] = {"cold_folder": self.cold_folder, "look_ahead": self.look_ahead}
        return RowPlacement(hot=hot, warm=warm, hot_every=self.hot_every, **kept)
