"""Policies: which codec for which table at which step."""

from laconic.adapt.rules import FixedPolicy, TableRule, plan_from_rules

__all__ = ["FixedPolicy", "TableRule", "plan_from_rules"]
