"""Rules by table name become a plan; the fixed policy hands it out after a warm-up."""

from __future__ import annotations

import pytest

from laconic.adapt.policy import FixedPolicy, TableRule, plan_from_rules
from laconic.codecs import BoundedRows
from laconic.errors import ConfigError
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs

FINE, COARSE = BoundedRows(0.01), BoundedRows(0.1)


def test_tables_without_a_rule_travel_as_they_are():
    plan = plan_from_rules(["user", "site"], [TableRule(tables="user", forward=FINE)])
    assert plan.tables == (TableCodecs(FINE, None), TableCodecs())


def test_the_last_rule_counts_whole_and_is_not_merged_with_those_before():
    rules = [TableRule(forward=FINE, backward=FINE), TableRule(tables="s*", forward=COARSE)]
    plan = plan_from_rules(["user", "site"], rules, coded_ids=False)
    assert plan.tables == (TableCodecs(FINE, FINE), TableCodecs(COARSE, None))
    assert not plan.coded_ids


def test_patterns_know_capital_letters():
    with pytest.raises(ConfigError, match=r"^policy: no table matches 'User' \(known: user\)$"):
        plan_from_rules(["user"], [TableRule(tables="User")])


def test_a_warm_up_keeps_the_coding_of_ids():
    policy = FixedPolicy(ExchangePlan((TableCodecs(FINE, FINE),), coded_ids=False), warmup_steps=2)
    assert policy.plan_for(1) == ExchangePlan.exact(1, coded_ids=False)
    assert policy.plan_for(2) is policy.plan


def test_a_warm_up_has_no_negative_length():
    with pytest.raises(ConfigError, match=r"^policy.warmup_steps: expected at least 0, got -1$"):
        FixedPolicy(ExchangePlan.exact(1), warmup_steps=-1)
