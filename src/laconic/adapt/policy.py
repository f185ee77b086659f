"""FixedPolicy: the same plan at every step, after a warm-up; and plans from patterns of table names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from laconic.codecs.batch import BlockCodec
from laconic.codecs.codec import expect_codec
from laconic.errors import ConfigError
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs

__all__ = ["FixedPolicy", "TableRule", "plan_from_rules"]


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
