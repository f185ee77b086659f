"""From patterns of table names, or from settings, to the policy that hands out codecs: the same at every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from laconic.adapt.settings import ExchangeSettings, RuleSettings
from laconic.codecs import BoundedRows, Cast, Lossless
from laconic.codecs.batch import BlockCodec
from laconic.codecs.codec import expect_codec
from laconic.errors import ConfigError
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs

__all__ = ["FixedPolicy", "TableRule", "check_gradient_bound", "make_policy", "plan_from_rules"]

_MOST_OF_RANGE = 0.5
"""Bound beside the range at which the middle of a block stands for all its values: wider ones say no more."""
_MOST_RMS = 10
"""Bound beside the root mean square at which unbiased rounding adds ten times the energy of normal values and more."""


@dataclass(frozen=True)
class FixedPolicy:
    """The same plan for every step from the end of the warm-up on."""

    plan: ExchangePlan
    warmup_steps: int = 0
    """Steps during which rows and gradients travel as they are."""
    _exact: ExchangePlan = field(init=False)

    def __post_init__(self) -> None:
        if self.warmup_steps < 0:
            raise ConfigError(f"policy.warmup_steps: expected at least 0, got {self.warmup_steps!r}")
        exact = ExchangePlan.exact(len(self.plan.tables), coded_ids=self.plan.coded_ids)
        object.__setattr__(self, "_exact", exact)

    def plan_for(self, step: int) -> ExchangePlan:
        """Return the plan of a step."""
        return self._exact if step < self.warmup_steps else self.plan


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRule:
    """Codecs of the tables whose names match."""

    tables: str = "*"
    """Shell pattern, as ``c_user*``."""

    forward: BlockCodec | None = None
    """Of rows; None: as they are."""

    backward: BlockCodec | None = None
    """Of gradients; None: as they are."""

    def __post_init__(self) -> None:
        expect_codec(f"rule of tables {self.tables!r}: forward", self.forward)
        expect_codec(f"rule of tables {self.tables!r}: backward", self.backward)


def plan_from_rules(
    names: Sequence[str], rules: Sequence[TableRule], *, coded_ids: bool = True
) -> ExchangePlan:
    """Give each table the codecs of the last rule that covers it; those that none covers travel as they are.

    A rule that covers no table is an error: its author meant one.
    """
    for rule in rules:
        if not any(fnmatchcase(name, rule.tables) for name in names):
            raise ConfigError(f"policy: no table matches {rule.tables!r} (known: {', '.join(names)})")
    codecs = []
    for name in names:
        covering = [rule for rule in rules if fnmatchcase(name, rule.tables)]
        last = covering[-1] if covering else TableRule()
        codecs.append(TableCodecs(last.forward, last.backward))
    return ExchangePlan(tuple(codecs), coded_ids)


def make_policy(settings: ExchangeSettings, names: Sequence[str]) -> FixedPolicy:
    """Return the fixed policy for tables of these names; ``ConfigError`` for a bound that could have none."""
    if settings.kind == "bounded":
        _check_widths(settings)
    for rule in settings.rules:
        _check_bounds(rule, settings.kind)
    rules = [_rule(settings, rule) for rule in (RuleSettings(tables="*"), *settings.rules)]
    plan = plan_from_rules(names, rules, coded_ids=settings.coded_ids)
    return FixedPolicy(plan, settings.warmup_steps)


def check_gradient_bound(where: str, bound: float | None, *, usual: float) -> None:
    """Refuse a bound, a share of the root mean square, that leaves more noise than gradient."""
    if bound is not None and bound > _MOST_RMS:
        raise ConfigError(
            f"{where}: expected at most {_MOST_RMS} times the root mean square, where noise has ten times the energy "
            f"of the gradient, got {bound!r}; {usual} is usual"
        )


def _check_widths(settings: ExchangeSettings) -> None:
    """Refuse bounds that leave nothing of what they bound; not in the settings, which older runs are read with."""
    usual = ExchangeSettings()
    all_given: list[tuple[str, ExchangeSettings | RuleSettings]] = [("exchange.", settings)]
    all_given += [(f"exchange.rules: {rule.tables!r}: ", rule) for rule in settings.rules]
    for where, given in all_given:
        check_gradient_bound(f"{where}gradient_bound", given.gradient_bound, usual=usual.gradient_bound)
        if settings.relative and given.bound is not None and given.bound > _MOST_OF_RANGE:
            raise ConfigError(
                f"{where}bound: expected at most {_MOST_OF_RANGE} of the range, where one value stands for all of a "
                f"block, got {given.bound!r}; {usual.bound} is usual, and exchange.relative = false makes it absolute"
            )


def _check_bounds(rule: RuleSettings, kind: str) -> None:
    for direction, bound in (("rows", rule.bound), ("gradients", rule.gradient_bound)):
        if bound is None:
            continue
        if kind != "bounded":
            raise ConfigError(
                f"exchange.rules: {rule.tables!r} has a bound, but exchange.kind is {kind!r}; leave it out"
            )
        if rule.exact in (True, direction):
            raise ConfigError(
                f"exchange.rules: {rule.tables!r} has exact {direction} and a bound of them; leave one out"
            )
    if rule.rounding is not None and (kind != "bounded" or rule.exact in (True, "rows")):
        raise ConfigError(
            f"exchange.rules: {rule.tables!r} says how rows are rounded, but they are not bounded; leave it out"
        )


def _rule(settings: ExchangeSettings, rule: RuleSettings) -> TableRule:
    return TableRule(
        tables=rule.tables,
        forward=None if rule.exact in (True, "rows") else _of_rows(settings, rule),
        backward=None if rule.exact in (True, "gradients") else _of_gradients(settings, rule),
    )


def _of_rows(settings: ExchangeSettings, rule: RuleSettings) -> BlockCodec | None:
    if settings.kind != "bounded":
        return _without_bound(settings)
    bound = settings.bound if rule.bound is None else rule.bound
    rounding = rule.rounding or settings.rounding
    return BoundedRows(bound, relative_to="range" if settings.relative else None, rounding=rounding)


def _of_gradients(settings: ExchangeSettings, rule: RuleSettings) -> BlockCodec | None:
    if settings.kind != "bounded":
        return _without_bound(settings)
    bound = settings.gradient_bound if rule.gradient_bound is None else rule.gradient_bound
    return BoundedRows(bound, relative_to="rms", rounding="unbiased")


def _without_bound(settings: ExchangeSettings) -> BlockCodec | None:
    if settings.kind == "lossless":
        return Lossless()
    return Cast(settings.cast) if settings.kind == "cast" else None
