"""Policies: which codec for which table at which step."""

from laconic.adapt.fixed import FixedPolicy
from laconic.adapt.rules import TableRule, plan_from_rules

__all__ = ["FixedPolicy", "TableRule", "plan_from_rules"]
