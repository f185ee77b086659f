"""What a run exchanges once its ``policy`` is looked up.

========= ==========================================================================
policy    exchange
========= ==========================================================================
fixed     as ``[exchange]`` says
auto      wide bounds, or those of ``[exchange]``, under a guard that narrows them, and economical
a file    what the file says; what it leaves out, as ``[exchange]`` says
========= ==========================================================================
"""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from laconic.config import Settings, load
from laconic.errors import ConfigError
from laconic.train.settings import ExchangeSettings, GuardSettings, RunSettings

__all__ = ["AUTO_BUDGET", "PolicyFile", "effective_auto", "effective_exchange"]

AUTO_BUDGET = 0.001
"""Increase of normalized entropy that ``auto`` allows unless the run has a budget: a thousandth of it."""


_WIDE = {"bound": 0.1, "gradient_bound": 1.0}


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


def effective_exchange(settings: RunSettings) -> ExchangeSettings:
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
