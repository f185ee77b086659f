"""From settings to the policy that they describe."""

from __future__ import annotations

from collections.abc import Sequence

from laconic.adapt import FixedPolicy, TableRule, plan_from_rules
from laconic.codecs import BoundedRows, Cast
from laconic.errors import ConfigError
from laconic.train.settings import ExchangeSettings, RuleSettings

__all__ = ["make_policy"]


def make_policy(settings: ExchangeSettings, names: Sequence[str]) -> FixedPolicy:
    """Return the fixed policy for tables of these names; ``ConfigError`` for a bound that could have none."""
    for rule in settings.rules:
        _check_bounds(rule, settings.kind)
    rules = [_rule("*", settings, None), *(_rule(rule.tables, settings, rule) for rule in settings.rules)]
    plan = plan_from_rules(names, rules, coded_ids=settings.coded_ids)
    return FixedPolicy(plan, settings.warmup_steps)


def _check_bounds(rule: RuleSettings, kind: str) -> None:
    if rule.bound is None and rule.gradient_bound is None:
        return
    if kind != "bounded":
        raise ConfigError(
            f"exchange.rules: {rule.tables!r} has a bound, but exchange.kind is {kind!r}; leave it out"
        )
    if rule.exact:
        raise ConfigError(f"exchange.rules: {rule.tables!r} is exact and has a bound; leave one out")


def _rule(tables: str, settings: ExchangeSettings, rule: RuleSettings | None) -> TableRule:
    if settings.kind == "exact" or (rule is not None and rule.exact):
        return TableRule(tables=tables)
    if settings.kind == "cast":
        cast = Cast(dtype=settings.cast)
        return TableRule(tables=tables, forward=cast, backward=cast)
    bound = rule.bound if rule is not None and rule.bound is not None else settings.bound
    gradient_bound = (
        rule.gradient_bound
        if rule is not None and rule.gradient_bound is not None
        else settings.gradient_bound
    )
    return TableRule(
        tables=tables,
        forward=BoundedRows(bound=bound, relative=settings.relative),
        backward=BoundedRows(bound=gradient_bound, relative="rms", dither=0),
    )
