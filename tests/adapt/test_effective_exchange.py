"""``policy`` decides what a run's ``[exchange]`` becomes."""

from __future__ import annotations

import pytest

from laconic.adapt.settings import _WIDE, AUTO_BUDGET, effective_exchange
from laconic.config import parse
from laconic.errors import ConfigError
from laconic.exchange.exchange_plan import ExchangePlan
from laconic.train import dense
from laconic.train.ranks import Ranks
from laconic.train.settings import RunSettings
from laconic.train.trainer import Trainer
from tests.cases import each
from tests.train import small_runs

DATA = '[data]\nkind = "synthetic"\n'

FILE = """
[exchange]
kind = "bounded"
rounding = "unbiased"

[[exchange.rules]]
tables = "c_user"
bound = 0.04
exact = "gradients"
"""


def settings_of(policy, text=""):
    return parse(DATA + text, RunSettings, (f"policy={policy}",))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(FILE)
    return path


def test_a_fixed_policy_is_the_exchange_of_the_run():
    settings = parse(DATA + "[exchange]\nbound = 0.02", RunSettings)
    assert settings.policy == "fixed"
    assert effective_exchange(settings) is settings.exchange


def test_auto_is_the_exchange_of_the_run_guarded_and_economical():
    settings = settings_of("auto", "[exchange]\nbound = 0.02")
    exchange = effective_exchange(settings)
    assert exchange.guard.budget == AUTO_BUDGET == 0.001
    assert exchange.economy
    assert exchange.bound == 0.02


def test_bounds_that_the_run_does_not_set_begin_wide_under_auto():
    fixed, auto = settings_of("fixed").exchange, effective_exchange(settings_of("auto"))
    assert (auto.bound, auto.gradient_bound) == (_WIDE["bound"], _WIDE["gradient_bound"])
    assert auto.bound > fixed.bound
    assert auto.gradient_bound > fixed.gradient_bound
    set_one = effective_exchange(settings_of("auto", "[exchange]\ngradient_bound = 0.2"))
    assert (set_one.bound, set_one.gradient_bound) == (_WIDE["bound"], 0.2)


def test_auto_keeps_a_budget_that_the_run_has():
    assert effective_exchange(settings_of("auto", "[exchange.guard]\nbudget = 0.01")).guard.budget == 0.01


@each("kind", ["exact", "cast"])
def test_auto_needs_bounds_to_adapt(kind):
    message = (
        rf"^policy: 'auto' adapts bounds and needs exchange.kind 'bounded', got '{kind}'; use policy 'fixed'$"
    )
    with pytest.raises(ConfigError, match=message):
        effective_exchange(settings_of("auto", f"[exchange]\nkind = '{kind}'"))


def test_what_a_file_says_replaces_what_the_run_says(file):
    exchange = effective_exchange(settings_of(file, "[exchange]\nkind = 'exact'\nrounding = 'nearest'"))
    assert (exchange.kind, exchange.rounding) == ("bounded", "unbiased")
    (rule,) = exchange.rules
    assert (rule.tables, rule.bound, rule.gradient_bound, rule.exact) == ("c_user", 0.04, None, "gradients")


def test_what_a_file_leaves_out_is_as_the_run_says(file):
    text = "[exchange]\nwarmup_steps = 9\ncoded_ids = false\n[exchange.guard]\nbudget = 0.002"
    exchange = effective_exchange(settings_of(file, text))
    assert (exchange.warmup_steps, exchange.coded_ids, exchange.guard.budget) == (9, False, 0.002)


def test_rules_in_both_places_are_an_error_that_says_where_to_put_them(file):
    with pytest.raises(ConfigError) as caught:
        effective_exchange(settings_of(file, "[[exchange.rules]]\ntables = 'c_ad'\nexact = true"))
    assert str(caught.value) == (
        f"policy: {file} has rules, and so has exchange.rules of the run; move those of the run into the file"
    )


def test_a_file_that_is_not_there_or_no_policy_is_named(tmp_path, file):
    with pytest.raises(ConfigError, match=r"/none\.toml: no such file$"):
        effective_exchange(settings_of(tmp_path / "none.toml"))
    file.write_text("[exchange]\nbuond = 0.1")
    with pytest.raises(
        ConfigError, match=r"policy\.toml: exchange\.buond: no such setting; did you mean 'bound'"
    ):
        effective_exchange(settings_of(file))
    file.write_text("[train]\nsteps = 1")
    with pytest.raises(ConfigError, match=r"policy\.toml: train: no such setting"):
        effective_exchange(settings_of(file))


@pytest.mark.parametrize(
    ("policy", "text", "bypasses"),
    [
        ("fixed", "", False),
        ("fixed", "[exchange]\neconomy = true\n", True),
        ("auto", "", True),
        ("file", "", True),
    ],
)
def test_an_economical_policy_also_lets_dense_gradients_travel_as_they_are(
    tmp_path, monkeypatch, policy, text, bypasses
):
    if policy == "file":
        policy = tmp_path / "policy.toml"
        policy.write_text("[exchange]\neconomy = true\n")
    given = {}
    monkeypatch.setattr(dense, "register_ddp", lambda _replica, _method, **how: given.update(how))
    dense.compress_gradients(None, settings_of(policy, text + "[dense]\nsend = 'levels'"))
    assert given["bypass"] is bypasses


def test_a_trainer_without_a_policy_of_its_own_follows_the_file_of_the_run(file):
    file.write_text("[exchange]\nkind = 'exact'\n")
    settings = small_runs.settings_of(f"policy={file}")
    made = Trainer(settings, small_runs.source_of(settings).schema, Ranks(0, 1))
    assert made.rows.policy.plan_for(0) == ExchangePlan.exact(4)
