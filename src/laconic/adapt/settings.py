"""``[compression]`` of a run's file: the words of :class:`Compression`, and what adapts it.

========= ==========================================================================================
policy    what travels as what
========= ==========================================================================================
fixed     as ``[compression]`` says
auto      within bounds that a guard widens as evidence allows, up to those that are set here;
          economically
a file    as the file of ``laconic tune`` says; what it leaves out, as ``[compression]`` says
========= ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from laconic.adapt import BUDGET
from laconic.adapt.compression import Compression, TableCompression
from laconic.adapt.decay import Decay
from laconic.adapt.exchange_words import compression_of
from laconic.codecs import Bounded, BoundedRows, Cast, Lossless
from laconic.codecs.batch import BlockCodec
from laconic.config import Settings, load
from laconic.errors import ConfigError
from laconic.reduce import Adder, Exact, LargeFirst, Levels, Rounded
from laconic.reduce.gradient_method import GradientMethod

__all__ = [
    "CodecException",
    "CompressionSettings",
    "DenseMethod",
    "GradientCodec",
    "PolicyFile",
    "RowCodec",
    "TableSettings",
]

_WIDE = {"rows": 0.1, "gradients": 1.0}
"""Bounds up to which ``auto`` widens where the run sets none."""

Codec = Literal["bounded", "exact", "lossless", "fp16", "bf16", "int8", "int4"]
RelativeTo = Literal["range", "rms", "none"]
Rounding = Literal["nearest", "unbiased"]


class _Method(Settings):
    """A method and its words. A string is short for the method alone: ``rows = "exact"``."""

    reads: ClassVar[Mapping[str, tuple[str, ...]]] = {"bounded": ("bound", "relative_to", "rounding")}
    """Words that each method reads; those that are not here read none."""

    @model_validator(mode="before")
    @classmethod
    def _of_a_word(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"method": given}
        if isinstance(given, dict | cls):
            return given
        raise ValueError(f'expected a method, as "exact", or {{ bound = 0.01 }}, got {given!r}')

    @model_validator(mode="after")
    def _reads_all(self) -> Self:
        method = getattr(self, "method")  # noqa: B009 -- of every subclass
        for name in type(self).model_fields:
            unread = name not in ("method", *self.reads.get(method, ()))
            if method is not None and unread and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{method!r} has no {name}; leave it out")
        return self


class CodecException(_Method):
    """What rows or gradients of some tables travel as; what is left out is as for all others."""

    method: Codec | None = None
    bound: float | None = Field(default=None, gt=0)
    relative_to: RelativeTo | None = None
    rounding: Rounding | None = None


class RowCodec(_Method):
    """What looked-up rows travel as."""

    method: Codec = "bounded"
    """``bounded``: within an error bound, entropy-coded; ``exact``: as they are; ``lossless``: the
    same bits in fewer bytes; the others: a narrower type."""

    bound: float = Field(default=0.0015, gt=0)
    """Largest error of a value."""

    relative_to: RelativeTo = "range"
    """What the bound is a share of: the range (max - min) of the values that all ranks send of a
    table, their root mean square, or none: it is absolute."""

    rounding: Rounding = "nearest"
    """``unbiased``: to one of two neighbors, with the probability that makes the mean right. Values
    that are small beside the bound are then right on average, for about a bit more per value."""

    def changed(self, given: Settings) -> Self:
        """Return it with what was given, in settings of codecs or of exceptions, instead."""
        words = {name: getattr(given, name) for name in given.model_fields_set}
        words = {name: value for name, value in words.items() if value is not None}
        if not words:
            return self
        if words.setdefault("method", "bounded") != "bounded":
            return type(self)(method=words["method"])
        usual = self if self.method == "bounded" else type(self)()
        return usual.model_copy(update=words)

    def codec(self) -> BlockCodec | None:
        """Return the codec; None: as they are."""
        if self.method == "exact":
            return None
        if self.method == "lossless":
            return Lossless()
        if self.method == "bounded":
            relative_to = None if self.relative_to == "none" else self.relative_to
            return BoundedRows(self.bound, relative_to=relative_to, rounding=self.rounding)
        return Cast(self.method)


class GradientCodec(RowCodec):
    """What gradients of rows travel as: the same words, other defaults."""

    bound: float = Field(default=0.06, gt=0)
    relative_to: RelativeTo = "rms"
    rounding: Rounding = "unbiased"


class DenseMethod(_Method):
    """What gradients of the dense part travel as."""

    reads: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "bounded": ("bound",),
        "large": ("bound", "keep", "refresh"),
    }

    method: Literal["exact", "lossless", "bf16", "levels", "bounded", "large", "rounded", "network"] = (
        "levels"
    )
    """``exact``: as they are; ``lossless``: the same bits in fewer bytes, summed in rank order;
    ``bf16``: half the bytes; ``levels``: every entry within a ninth of itself, about 6 bits;
    ``bounded``: within a bound, entropy-coded, rounded without bias; ``large``: the large entries
    of every layer within a bound, while the rest waits; ``rounded``: as int32 multiples of a step
    that ranks share; ``network``: the same, added by the aggregator that LACONIC_AGGREGATOR
    names."""

    bound: float = Field(default=0.05, gt=0)
    """Largest error of an entry that is sent, as a share of its layer's root mean square."""

    keep: float = Field(default=0.02, gt=0, le=1)
    """Share of each layer that ``large`` sends in a step."""

    refresh: int = Field(default=1000, ge=1)
    """Steps after which ``large`` looks for the thresholds of layers again, at the latest."""

    def value(self, seed: int, network: Adder | None) -> GradientMethod:
        """Return the method; ``network`` adds where the method is ``network``."""
        if self.method == "bounded":
            return Bounded(self.bound, relative_to="rms", rounding="unbiased", seed=seed)
        if self.method == "large":
            values = Bounded(self.bound, relative_to="rms")
            return LargeFirst(self.keep, refresh=self.refresh, values=values)
        if self.method == "network":
            return network or Rounded()
        simple: dict[str, GradientMethod] = {
            "exact": Exact(),
            "lossless": Lossless(),
            "bf16": Cast("bf16"),
            "levels": Levels(),
            "rounded": Rounded(),
        }
        return simple[self.method]


class TableSettings(Settings):
    """What the tables of one pattern travel as. A string is short for both directions."""

    rows: CodecException = CodecException()
    """Looked-up rows."""

    gradients: CodecException = CodecException()
    """Their gradients."""

    @model_validator(mode="before")
    @classmethod
    def _of_a_word(cls, given: Any) -> Any:
        return {"rows": given, "gradients": given} if isinstance(given, str) else given


class CompressionSettings(Settings):
    """What rows, gradients, dense gradients and ids travel as, and what adapts that."""

    policy: str = "fixed"
    """``fixed``: as the settings below say; ``auto``: within bounds that a guard widens; or a file
    that ``laconic tune`` wrote, relative to the working directory."""

    rows: RowCodec = RowCodec()
    """Looked-up rows."""

    gradients: GradientCodec = GradientCodec()
    """Their gradients."""

    dense: DenseMethod = DenseMethod()
    """Gradients of the dense part."""

    ids: bool = True
    """Ids are delta- and entropy-coded; false: eight bytes each."""

    by_rows: bool = True
    """Relative bounds of ``rows`` and ``gradients`` grow with the square root of the rows that a
    table sends in a step; they are then those of the mean table. Exceptions are as written."""

    warmup: int = Field(default=0, ge=0)
    """Number of first steps in which rows and all gradients travel as they are."""

    decay: Decay = Decay()
    """Wider bounds of rows at the start."""

    budget: float | None = Field(default=None, gt=0, lt=1)
    """Largest increase of the loss, as a share of it, that a guard keeps by widening and narrowing
    bounds; left out: there is no guard."""

    economy: bool = False
    """Only what saves more time on the wire than it takes to encode is compressed."""

    tables: dict[str, TableSettings] = Field(default_factory=dict)
    """Exceptions by shell pattern of table names; the last pattern that matches a table counts."""

    @field_validator("policy")
    @classmethod
    def _known(cls, policy: str) -> str:
        if policy in ("fixed", "auto") or policy.endswith(".toml"):
            return policy
        raise ValueError(f"expected 'fixed', 'auto' or a .toml file that laconic tune wrote, got {policy!r}")

    def effective(self) -> CompressionSettings:
        """Return the settings under the policy; ``ConfigError`` if they do not fit it."""
        if self.policy == "fixed":
            return self
        if self.policy == "auto":
            return self._auto()
        file = load(self.policy, PolicyFile).compression
        if self.tables and file.tables:  # the last that matches counts: neither order is surely meant
            raise ConfigError(
                f"compression.policy: {self.policy} has tables, and so has compression.tables of the run; "
                "move those of the run into the file"
            )
        given = {name: getattr(file, name) for name in file.model_fields_set}
        given |= {name: getattr(self, name).changed(getattr(file, name)) for name in ("rows", "gradients")}
        return self.model_copy(update={**given, "policy": "fixed"})

    def _auto(self) -> CompressionSettings:
        """Let bounds that were not set be wide: a guard begins far below them."""
        found: dict[str, Any] = {"policy": "fixed", "economy": True, "budget": self.budget or BUDGET}
        for name, wide in _WIDE.items():
            given: RowCodec = getattr(self, name)
            if given.method != "bounded":
                raise ConfigError(
                    f"compression.policy: 'auto' adapts bounds, got compression.{name} = {given.method!r}; "
                    "use policy 'fixed'"
                )
            if "bound" not in given.model_fields_set:
                found[name] = given.model_copy(update={"bound": wide})
        return self.model_copy(update=found)

    def compression(self, *, seed: int = 0, network: Adder | None = None) -> Compression:
        """Return the value that the settings describe, whatever the policy.

        ``ConfigError`` for a bound that is too wide. ``seed`` is for unbiased rounding of dense
        gradients. ``network`` adds where ``dense`` is ``network``; without one the ranks add, to
        the same bits.
        """
        return Compression(
            rows=self.rows.codec(),
            gradients=self.gradients.codec(),
            dense=self.dense.value(seed, network),
            ids=self.ids,
            by_rows=self.by_rows,
            tables={pattern: self._exception(table) for pattern, table in self.tables.items()},
            warmup=self.warmup,
        )

    def _exception(self, table: TableSettings) -> TableCompression:
        """Return the directions that a table's settings speak of; the others are as usual."""
        found: TableCompression = {}
        if table.rows.model_fields_set:
            found["rows"] = self.rows.changed(table.rows).codec()
        if table.gradients.model_fields_set:
            found["gradients"] = self.gradients.changed(table.gradients).codec()
        return found


class PolicyFile(Settings):
    """A file of ``laconic tune``."""

    compression: CompressionSettings

    @model_validator(mode="before")
    @classmethod
    def _from_before(cls, tree: Any) -> Any:
        """Read files that have ``[exchange]``."""
        if not isinstance(tree, dict) or not isinstance(tree.get("exchange"), dict):
            return tree
        others = {name: value for name, value in tree.items() if name != "exchange"}
        return {"compression": compression_of(tree["exchange"]), **others}
