"""FixedPolicy: the same plan at every step, after a warm-up."""

from __future__ import annotations

from dataclasses import dataclass, field

from laconic.errors import ConfigError
from laconic.exchange.exchange_plan import ExchangePlan

__all__ = ["FixedPolicy"]


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
