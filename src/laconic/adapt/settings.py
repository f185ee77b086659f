"""What rows, gradients and ids of a run travel as: its ``[exchange]``, and what its ``policy`` makes of that.

========= ==========================================================================
policy    exchange
========= ==========================================================================
fixed     as ``[exchange]`` says
auto      wide bounds, or those of ``[exchange]``, under a guard that narrows them, and economical
a file    what the file says; what it leaves out, as ``[exchange]`` says
========= ==========================================================================
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, Self

from pydantic import Field, field_validator, model_validator

from laconic.config import Settings, load
from laconic.errors import ConfigError

__all__ = [
    "AUTO_BUDGET",
    "DecaySettings",
    "ExchangeSettings",
    "GuardSettings",
    "PolicyFile",
    "RuleSettings",
    "effective_auto",
    "effective_exchange",
]

AUTO_BUDGET = 0.001
"""Increase of normalized entropy that ``auto`` allows unless the run has a budget: a thousandth of it."""


_WIDE = {"bound": 0.1, "gradient_bound": 1.0}


class RuleSettings(Settings):
    """What the tables of one pattern travel as, where it differs from ``[exchange]``."""

    tables: str
    """Shell pattern of table names, as ``c_user*``; the last rule that matches a table counts."""

    exact: Literal["rows", "gradients", True, False] = False
    """Rows and gradients of these tables travel as they are, or one of them."""

    bound: float | None = Field(default=None, gt=0)
    """Bound of their rows."""

    rounding: Literal["nearest", "unbiased"] | None = None
    """Of their rows; left out: as ``[exchange]`` says."""

    gradient_bound: float | None = Field(default=None, gt=0)
    """Bound of their gradients."""


class DecaySettings(Settings):
    """How bounds narrow in the course of training: wide at first, their own in the end."""

    kind: Literal["none", "step", "linear", "log", "constant"] = "none"
    """How they narrow, by the clock."""

    k: float = Field(default=2.0, ge=1)
    """What bounds are multiplied with at the start."""

    steps: int = Field(default=0, ge=0)
    """When bounds are their own."""

    @field_validator("kind", mode="before")
    @classmethod
    def _exists(cls, kind: Any) -> Any:
        if kind == "closed_loop":
            raise ValueError(
                "expected 'none', 'step', 'linear', 'log' or 'constant', got 'closed_loop', which is gone; "
                "a wider exchange.bound saves as much"
            )
        return kind

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.kind != "none" and not self.steps:
            raise ValueError(
                f"expected steps > 0 where kind is {self.kind!r}, got 0; say at which step bounds are their own"
            )
        return self


class GuardSettings(Settings):
    """What watches over the loss while it trains."""

    budget: float | None = Field(default=None, gt=0, lt=1)
    """Largest increase of normalized entropy, as a share of it; left out: nobody watches."""


class ExchangeSettings(Settings):
    """What rows, gradients and ids travel as."""

    kind: Literal["bounded", "cast", "lossless", "exact"] = "bounded"
    """``bounded``: within an error bound, entropy-coded; ``cast``: a narrower type; ``lossless``:
    the same bits in fewer bytes; ``exact``: as they are."""

    bound: float = Field(default=0.01, gt=0)
    """Largest error of a looked-up value, as a share of its block's range (max - min)."""

    relative: bool = True
    """False: the bound is absolute, in the unit of the embeddings."""

    rounding: Literal["nearest", "unbiased"] = "nearest"
    """Of rows. ``unbiased``: to one of two neighbors, with the probability that makes the mean
    right; rows that are small beside the bound are then trained as they should be, for about a bit
    more per value."""

    gradient_bound: float = Field(default=0.35, gt=0)
    """Largest error of a gradient's value, as a share of its block's root mean square; rounding is unbiased."""

    cast: Literal["fp16", "bf16", "int8", "int4"] = "fp16"
    """Type of both directions where ``kind`` is ``cast``."""

    coded_ids: bool = True
    """Ids are delta- and entropy-coded; False: eight bytes each."""

    warmup_steps: int = Field(default=0, ge=0)
    """Steps with exact communication before all this begins."""

    decay: DecaySettings = DecaySettings()
    """Wider bounds at the start."""

    guard: GuardSettings = GuardSettings()
    """Exactness where bounds harm too much."""

    economy: bool = False
    """Only what saves more time on the wire than it takes to encode is compressed."""

    rules: tuple[RuleSettings, ...] = ()
    """Exceptions by table name."""

    @model_validator(mode="before")
    @classmethod
    def _without_axes(cls, tree: Any) -> Any:
        if isinstance(tree, dict) and "axes" in tree:
            raise ValueError("axes is gone: rows are rounded along the dimensions they have; remove the line")
        return tree


class PolicyFile(Settings):
    """A file of ``laconic tune``."""

    exchange: ExchangeSettings

    @model_validator(mode="before")
    @classmethod
    def _from_before(cls, tree: Any) -> Any:
        """Read files that say along which axes their bounds are, unless that is gone."""
        exchange = tree.get("exchange") if isinstance(tree, dict) else None
        if not isinstance(exchange, dict) or "axes" not in exchange:
            return tree
        if exchange["axes"] == "principal":
            raise ValueError(
                "its bounds are of coordinates along principal axes, which are gone; run laconic tune again"
            )
        return {**tree, "exchange": {name: value for name, value in exchange.items() if name != "axes"}}


class HasExchange(Protocol):
    """The settings of a run, as far as they say what it exchanges."""

    @property
    def exchange(self) -> ExchangeSettings: ...

    @property
    def policy(self) -> str: ...


def effective_exchange(settings: HasExchange) -> ExchangeSettings:
    """Return the exchange that the run's policy describes; ``ConfigError`` where it and the run disagree."""
    if settings.policy == "fixed":
        return settings.exchange
    if settings.policy == "auto":
        return effective_auto(settings.exchange)
    return _from_file(settings.policy, settings.exchange)


def effective_auto(exchange: ExchangeSettings) -> ExchangeSettings:
    """Return the exchange of ``auto``: bounds that were not set begin wide, for the guard to narrow."""
    if exchange.kind != "bounded":
        raise ConfigError(
            f"policy: 'auto' adapts bounds and needs exchange.kind 'bounded', got {exchange.kind!r}; use policy 'fixed'"
        )
    found: dict[str, Any] = {"economy": True}
    if exchange.guard.budget is None:
        found["guard"] = GuardSettings(budget=AUTO_BUDGET)
    for name, wide in _WIDE.items():
        if name not in exchange.model_fields_set:
            found[name] = wide
    return exchange.model_copy(update=found)


def _from_file(path: str, exchange: ExchangeSettings) -> ExchangeSettings:
    file = load(path, PolicyFile).exchange
    if exchange.rules and file.rules:  # the last rule that matches counts: neither order is surely meant
        raise ConfigError(
            f"policy: {path} has rules, and so has exchange.rules of the run; move those of the run into the file"
        )
    return exchange.model_copy(update={name: getattr(file, name) for name in file.model_fields_set})
