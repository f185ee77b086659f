"""The exchange plan: which codec each table has in each direction, as a frozen value.

All ranks follow one plan at a time. Its digest travels in every size message, so that ranks that
disagree find out before data moves. ``None`` for a codec means that values travel as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Protocol

from laconic.codecs.batch import BlockCodec
from laconic.codecs.codec import expect_codec
from laconic.exchange.ledger import Direction

__all__ = ["ExchangePlan", "Policy", "TableCodecs"]


@dataclass(frozen=True, slots=True)
class TableCodecs:
    """What one table's rows and gradients travel as."""

    forward: BlockCodec | None = None
    """Of looked-up rows."""

    backward: BlockCodec | None = None
    """Codec of their gradients. One that rounds without bias gets another seed in every step and
    table."""

    by_rows: tuple[Direction, ...] = ()
    """Directions whose relative bounds grow with the square root of the rows that the table sends,
    beside those that other tables send (``exchange/scales.py``)."""

    @property
    def both(self) -> tuple[BlockCodec | None, BlockCodec | None]:
        """Codecs of rows and of gradients."""
        return self.forward, self.backward

    def __post_init__(self) -> None:
        expect_codec("exchange plan: forward", self.forward)
        expect_codec("exchange plan: backward", self.backward)


@dataclass(frozen=True)
class ExchangePlan:
    """Codecs of all tables, in their order."""

    tables: tuple[TableCodecs, ...]

    coded_ids: bool = True
    """Ids travel through ``IdList``; otherwise eight bytes each."""

    @classmethod
    def exact(cls, tables: int, *, coded_ids: bool = True) -> ExchangePlan:
        """Every value travels as it is."""
        return cls((TableCodecs(),) * tables, coded_ids)

    @cached_property
    def digest(self) -> int:
        """63 bits that differ where plans do."""
        text = repr((self.tables, self.coded_ids)).encode()
        return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") >> 1


class Policy(Protocol):
    """Hands out plans: the same object until something changes."""

    def plan_for(self, step: int) -> ExchangePlan:
        """Return the plan of a step; every rank gets an equal one."""
        ...
