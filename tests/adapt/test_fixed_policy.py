"""The fixed policy hands out its plan after a warm-up."""

from __future__ import annotations

import pytest

from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows
from laconic.errors import ConfigError
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs

FINE = BoundedRows(0.01)


def test_a_warm_up_keeps_the_coding_of_ids():
    policy = FixedPolicy(ExchangePlan((TableCodecs(FINE, FINE),), coded_ids=False), warmup_steps=2)
    assert policy.plan_for(1) == ExchangePlan.exact(1, coded_ids=False)
    assert policy.plan_for(2) is policy.plan


def test_a_warm_up_has_no_negative_length():
    with pytest.raises(ConfigError, match=r"^policy.warmup_steps: expected at least 0, got -1$"):
        FixedPolicy(ExchangePlan.exact(1), warmup_steps=-1)
