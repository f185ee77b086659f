"""Compression: what rows, gradients, dense gradients and ids travel as, as one value.

=========== ============================================ =========================================
field       what travels                                 ``None`` or False
=========== ============================================ =========================================
rows        looked-up rows, from their owners            as they are
gradients   gradients of these rows, to their owners     as they are
dense       gradients of the dense part, to all ranks    ``Exact()`` says so
ids         ids of the rows that are looked up           eight bytes each
=========== ============================================ =========================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypedDict

from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows, Lossless
from laconic.codecs.batch import BlockCodec
from laconic.codecs.codec import expect_codec
from laconic.errors import ConfigError
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.exchange.ledger import Direction
from laconic.reduce import Exact, LargeFirst, Levels
from laconic.reduce.gradient_method import GradientMethod, expect_gradient_method

__all__ = ["Compression", "TableCompression"]

_WIDEST = {
    "range": (0.5, "0.5 of the range, where one value stands for all of a block", 0.0015),
    "rms": (10, "10 times the root mean square, where noise has ten times the energy of the values", 0.06),
}
"""Widest bound that leaves something of a block, why, and what is usual."""


class TableCompression(TypedDict, total=False):
    """What the tables of a pattern travel as; what is left out is as for all other tables."""

    rows: BlockCodec | None
    """Codec of looked-up rows; None: they travel as they are."""

    gradients: BlockCodec | None
    """Codec of their gradients; None: they travel as they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compression:
    """What travels between ranks, and as what; without an argument, what ``laconic train`` does.

    >>> laconic.Compression() == laconic.Compression(
    ...     rows=laconic.BoundedRows(0.0015, relative_to="range"),
    ...     gradients=laconic.BoundedRows(0.06, relative_to="rms", rounding="unbiased"),
    ...     dense=laconic.Levels(),
    ... )
    True
    >>> careful = laconic.Compression(
    ...     dense=laconic.Lossless(),
    ...     tables={"country*": None, "user": {"rows": laconic.Cast("fp16")}},
    ...     warmup=100,
    ... )
    >>> careful.policy(["country", "user"]).plan_for(100).tables[0]
    TableCodecs(forward=None, backward=None, by_rows=())
    """

    rows: BlockCodec | None = BoundedRows(0.0015, relative_to="range")  # noqa: RUF009 -- frozen
    """Codec of looked-up rows; None: they travel as they are."""

    gradients: BlockCodec | None = BoundedRows(0.06, relative_to="rms", rounding="unbiased")  # noqa: RUF009
    """Codec of their gradients; None: they travel as they are. One that rounds without bias gets
    another seed at every step."""

    dense: GradientMethod = Levels()  # noqa: RUF009
    """What gradients of the dense part travel as: what ``register_ddp`` takes as its method."""

    ids: bool = True
    """Whether ids are coded, without loss; False: eight bytes each."""

    tables: Mapping[str, BlockCodec | TableCompression | None] = field(default_factory=dict, compare=False)
    """Exceptions, by shell pattern of table names; the last pattern that matches counts. None: rows
    and gradients travel as they are. A codec without a bound: both travel so. ``{"rows": codec}``,
    ``{"gradients": codec}`` or both: the other direction travels as for all other tables."""

    by_rows: bool = True
    """Whether relative bounds of ``rows`` and ``gradients`` grow with the square root of the rows
    that a table sends, which saves bytes at the same harm. The bounds are then those of the mean
    table. False: all tables have the bounds as they are written; exceptions always have."""

    warmup: int = 0
    """Number of first steps in which rows, gradients and dense gradients travel as they are."""

    _exceptions: tuple[tuple[str, TableCodecs], ...] = field(init=False, repr=False)
    """The patterns of ``tables`` in their order, with the codecs of both directions."""

    def __post_init__(self) -> None:
        for name in ("rows", "gradients"):
            _check_codec(f"compression.{name}", getattr(self, name))
        if self.dense is None:
            raise ConfigError("compression.dense: expected a method, got None; write laconic.Exact()")
        expect_gradient_method("compression.dense", self.dense)
        _check_width("compression.dense", self.dense)
        for name in ("ids", "by_rows"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"compression.{name}: expected True or False, got {getattr(self, name)!r}")
        if isinstance(self.warmup, bool) or not isinstance(self.warmup, int) or self.warmup < 0:
            raise ConfigError(f"compression.warmup: expected at least 0 steps, got {self.warmup!r}")
        if not isinstance(self.tables, Mapping):
            raise ConfigError(
                f"compression.tables: expected codecs by patterns of names, got {self.tables!r}; "
                'write {"country*": None}'
            )
        object.__setattr__(self, "tables", dict(self.tables))
        exceptions = tuple((pattern, self._codecs_of(pattern)) for pattern in self.tables)
        object.__setattr__(self, "_exceptions", exceptions)

    @classmethod
    def exact(cls) -> Compression:
        """Send everything as it is: rows and gradients in float32, ids in eight bytes each."""
        return cls(rows=None, gradients=None, dense=Exact(), ids=False)

    @classmethod
    def lossless(cls) -> Compression:
        """Send everything in fewer bytes, every bit of it."""
        return cls(rows=Lossless(), gradients=Lossless(), dense=Lossless())

    def policy(self, names: Sequence[str]) -> FixedPolicy:
        """Return the policy of tables of these names; a pattern that matches none is an error."""
        for pattern, _ in self._exceptions:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ConfigError(
                    f"compression.tables: no table matches {pattern!r} (known: {', '.join(names)})"
                )
        usual = TableCodecs(self.rows, self.gradients, self._by_rows("rows", "gradients"))
        codecs = [
            ([usual] + [codecs for pattern, codecs in self._exceptions if fnmatchcase(name, pattern)])[-1]
            for name in names
        ]
        return FixedPolicy(ExchangePlan(tuple(codecs), self.ids), self.warmup)

    def _by_rows(self, *names: str) -> tuple[Direction, ...]:
        """Return the directions of these whose bounds differ by table."""
        ways: dict[str, Direction] = {"rows": "forward", "gradients": "backward"}
        relative = [name for name in names if getattr(getattr(self, name), "relative_to", None) is not None]
        return tuple(ways[name] for name in relative if self.by_rows)

    def _codecs_of(self, pattern: str) -> TableCodecs:
        where, given = f"compression.tables[{pattern!r}]", self.tables[pattern]
        if given is None:
            return TableCodecs()
        if isinstance(given, Mapping):
            unknown = set(given) - set(TableCompression.__annotations__)
            if unknown:
                raise ConfigError(f"{where}: no such direction {min(unknown)!r} (known: rows, gradients)")
            found: dict[str, Any] = {"rows": self.rows, "gradients": self.gradients, **given}
            for name, codec in given.items():
                _check_codec(f"{where}: {name}", codec)
            usual = [name for name in ("rows", "gradients") if name not in given]
            return TableCodecs(found["rows"], found["gradients"], self._by_rows(*usual))
        _check_codec(where, given)
        if hasattr(given, "bound"):
            raise ConfigError(
                f"{where}: expected bounds of rows and of gradients, got {given!r} for both; "
                f'write {{"rows": {given!r}}}, and "gradients" if theirs differs too'
            )
        return TableCodecs(given, given)


def _check_codec(where: str, codec: object) -> None:
    expect_codec(where, codec)
    _check_width(where, codec)


def _check_width(where: str, method: object) -> None:
    """Refuse bounds that leave nothing of what they bound."""
    codec = method.values if isinstance(method, LargeFirst) else method
    bound, relative_to = (getattr(codec, name, None) for name in ("bound", "relative_to"))
    if bound is None or relative_to is None:
        return
    most, why, usual = _WIDEST[relative_to]
    if bound > most:
        raise ConfigError(f"{where}: expected a bound of at most {why}, got {bound!r}; {usual} is usual")
