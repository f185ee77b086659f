"""Settings of a run are refused with the place, the value and a way out; policies follow them."""

from __future__ import annotations

import pytest

from laconic.adapt.policy import make_policy
from laconic.adapt.settings import ExchangeSettings
from laconic.codecs import BoundedRows, Cast
from laconic.config import parse
from laconic.errors import ConfigError
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.train.settings import RunSettings

DATA = '[data]\nkind = "synthetic"\n'
NAMES = ("c_user", "c_site", "c_ad")


def refused(text, *overrides):
    with pytest.raises(ConfigError) as caught:
        parse(DATA + text, RunSettings, overrides, where="run.toml")
    return str(caught.value)


def test_an_unknown_setting_is_named_with_the_one_that_was_meant():
    message = refused("[train]\nstpes = 3")
    assert message.startswith(
        "run.toml: train.stpes: no such setting; did you mean 'steps'? (known: batch, epo"
    )
    assert refused("[exchange]\ngradientbound = 1").startswith(
        "run.toml: exchange.gradientbound: no such setting; did you mean 'gradient_bound'? (known: kind, bound"
    )
    assert refused("[trian]").startswith(
        "run.toml: trian: no such setting; did you mean 'train'? (known: data,"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train]\nbatch = 0", "run.toml: train.batch: expected a value >= 1, got 0"),
        ("[train]\nseed = 1048576", "run.toml: train.seed: expected a value >= 0 and < 1048576, got 1048576"),
        ("[train]\ntimeout_s = 0", "run.toml: train.timeout_s: expected a value > 0, got 0"),
        ("[exchange]\nbound = 0.0", "run.toml: exchange.bound: expected a value > 0, got 0.0"),
        ("[exchange]\nbound = nan", "run.toml: exchange.bound: expected a finite number, got nan"),
        (
            "[exchange]\nkind = 'bonded'",
            "run.toml: exchange.kind: expected 'bounded', 'cast', 'lossless' or 'exact', got 'bonded'",
        ),
        ("[embeddings]\nrate = -1.0", "run.toml: embeddings.rate: expected a value >= 0, got -1.0"),
        ("[model]\nbottom = [8, 0]", "run.toml: model.bottom.1: expected greater than or equal to 1, got 0"),
        ("[[exchange.rules]]\nexact = true", "run.toml: exchange.rules.0.tables: required, but not given"),
        (
            "[[exchange.rules]]\ntables = 'a'\nexact = 'both'",
            "run.toml: exchange.rules.0.exact: expected 'rows', 'gradients', True or False, got 'both'",
        ),
        (
            "[exchange]\nrounding = 'down'",
            "run.toml: exchange.rounding: expected 'nearest' or 'unbiased', got 'down'",
        ),
        (
            "[exchange.decay]\nkind = 'linear'",
            "run.toml: exchange.decay: expected steps > 0 where kind is 'linear', got 0; say at which step bounds are their own",
        ),
        ("[exchange.decay]\nk = 0.5", "run.toml: exchange.decay.k: expected a value >= 1, got 0.5"),
        (
            "[exchange.guard]\nbudget = 1.0",
            "run.toml: exchange.guard.budget: expected a value > 0 and < 1, got 1.0",
        ),
    ],
)
def test_a_value_out_of_range_is_shown_with_the_range(text, message):
    assert refused(text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train]\nbatch = 'many'", "run.toml: train.batch: expected a valid integer, unable to parse string as an integer, got 'many'"),
        ("[train]\nbatch = 1.5", "run.toml: train.batch: expected a valid integer, got a number with a fractional part, got 1.5"),
        ("[train]\ntensorboard = 7", "run.toml: train.tensorboard: expected a valid boolean"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_shown(text, message):
    assert refused(text).startswith(message)


def test_every_problem_has_a_line():
    lines = refused("[train]\nbatch = 0\nepochs = 0\n[model]\ndmi = 3").splitlines()
    assert [line.split(":")[1].strip() for line in lines] == ["model.dmi", "train.batch", "train.epochs"]


def test_an_override_wins_over_the_file_and_is_named_in_an_error():
    settings = parse(
        DATA + "[train]\nbatch = 8",
        RunSettings,
        ("train.batch=16", "train.out=elsewhere", "model.top=[4, 2]"),
    )
    assert settings.train.batch == 16
    assert str(settings.train.out) == "elsewhere"
    assert settings.model.top == (4, 2)
    assert refused("", "train.batch=0") == "--set: train.batch: expected a value >= 1, got 0"
    assert refused("", "train.bacth=1").startswith(
        "--set: train.bacth: no such setting; did you mean 'batch'?"
    )
    assert refused("", "train") == "--set: expected name.of.setting=value, got 'train'"


def test_a_policy_is_a_known_name_or_a_file():
    assert refused("", "policy=automatic") == (
        "--set: policy: expected 'fixed', 'auto' or a .toml file that laconic tune wrote, got 'automatic'"
    )


@pytest.mark.parametrize("kind", ["step", "linear", "log", "constant"])
def test_a_decay_by_the_clock_says_when_it_ends(kind):
    text = f"[exchange.decay]\nkind = '{kind}'\nsteps = 9"
    assert parse(DATA + text, RunSettings).exchange.decay.steps == 9


@pytest.mark.parametrize("axes", ["own", "principal"])
def test_axes_that_are_gone_are_refused_with_what_to_do(axes):
    with pytest.raises(ConfigError) as caught:
        parse(DATA + f"[exchange]\naxes = '{axes}'", RunSettings, where="run.toml")
    assert str(caught.value) == (
        "run.toml: exchange: axes is gone: rows are rounded along the dimensions they have; remove the line"
    )


def test_the_closed_loop_that_is_gone_is_refused_with_the_kinds_that_exist():
    with pytest.raises(ConfigError) as caught:
        parse(DATA + "[exchange.decay]\nkind = 'closed_loop'", RunSettings, where="run.toml")
    assert str(caught.value) == (
        "run.toml: exchange.decay.kind: expected 'none', 'step', 'linear', 'log' or 'constant', got 'closed_loop', "
        "which is gone; a wider exchange.bound saves as much"
    )


def policy_of(**settings):
    return make_policy(ExchangeSettings(**{"bound": 0.03, "gradient_bound": 0.5, **settings}), NAMES)


def plan_of(**settings):
    return policy_of(**settings).plan


BOUNDED = TableCodecs(
    BoundedRows(0.03, relative_to="range"), BoundedRows(0.5, relative_to="rms", rounding="unbiased")
)


def test_without_rules_all_tables_are_alike():
    assert plan_of() == ExchangePlan((BOUNDED,) * 3)
    assert plan_of(kind="exact", coded_ids=False) == ExchangePlan.exact(3, coded_ids=False)
    assert plan_of(kind="cast", cast="bf16").tables[1] == TableCodecs(Cast("bf16"), Cast("bf16"))


def test_the_last_rule_that_matches_a_table_counts():
    rules = [
        {"tables": "c_*", "bound": 0.1},
        {"tables": "*site", "exact": True},
        {"tables": "c_a?", "gradient_bound": 2.0},
    ]
    user, site, ad = plan_of(rules=rules).tables
    assert user == TableCodecs(BoundedRows(0.1, relative_to="range"), BOUNDED.backward)
    assert site == TableCodecs()
    assert ad == TableCodecs(BOUNDED.forward, BoundedRows(2.0, relative_to="rms", rounding="unbiased"))


def test_a_rule_for_no_table_is_an_error():
    with pytest.raises(
        ConfigError, match=r"^policy: no table matches 'user\*' \(known: c_user, c_site, c_ad\)$"
    ):
        plan_of(rules=[{"tables": "user*"}])


def test_a_bound_that_the_kind_has_no_use_for_is_an_error():
    message = r"^exchange.rules: 'c_ad' has a bound, but exchange.kind is 'cast'; leave it out$"
    with pytest.raises(ConfigError, match=message):
        plan_of(kind="cast", rules=[{"tables": "c_ad", "bound": 0.1}])


@pytest.mark.parametrize(
    ("rule", "direction"),
    [
        ({"exact": True, "gradient_bound": 0.1}, "gradients"),
        ({"exact": "gradients", "gradient_bound": 0.1}, "gradients"),
        ({"exact": "rows", "bound": 0.1}, "rows"),
    ],
)
def test_a_direction_that_is_exact_has_no_bound(rule, direction):
    with pytest.raises(ConfigError) as caught:
        plan_of(rules=[{"tables": "c_ad", **rule}])
    assert (
        str(caught.value)
        == f"exchange.rules: 'c_ad' has exact {direction} and a bound of them; leave one out"
    )


def test_a_rule_rounds_its_rows_as_it_says():
    rule = {"tables": "c_ad", "bound": 0.1, "rounding": "nearest"}
    _, site, ad = plan_of(rounding="unbiased", rules=[rule]).tables
    assert ad.forward == BoundedRows(0.1, relative_to="range")
    assert site.forward == BoundedRows(0.03, relative_to="range", rounding="unbiased")


@pytest.mark.parametrize(("kind", "exact"), [("cast", False), ("bounded", True), ("bounded", "rows")])
def test_rounding_of_rows_that_are_not_bounded_is_refused(kind, exact):
    message = r"^exchange.rules: 'c_ad' says how rows are rounded, but they are not bounded; leave it out$"
    with pytest.raises(ConfigError, match=message):
        plan_of(kind=kind, rules=[{"tables": "c_ad", "exact": exact, "rounding": "nearest"}])


def test_one_direction_of_a_table_may_be_exact():
    rules = [
        {"tables": "c_site", "exact": "rows", "gradient_bound": 2.0},
        {"tables": "c_ad", "exact": "gradients"},
    ]
    user, site, ad = plan_of(rules=rules).tables
    assert user == BOUNDED
    assert site == TableCodecs(None, BoundedRows(2.0, relative_to="rms", rounding="unbiased"))
    assert ad == TableCodecs(BOUNDED.forward, None)
    cast = plan_of(kind="cast", rules=[{"tables": "c_ad", "exact": "rows"}])
    assert cast.tables[2] == TableCodecs(None, Cast("fp16"))


def test_unbiased_rounding_is_of_rows():
    assert plan_of(rounding="unbiased").tables[0] == TableCodecs(
        BoundedRows(0.03, relative_to="range", rounding="unbiased"), BOUNDED.backward
    )


def test_a_plan_is_the_same_object_until_something_changes():
    policy = policy_of(warmup_steps=3)
    exact, bounded = policy.plan_for(0), policy.plan_for(3)
    assert [policy.plan_for(step) is exact for step in range(5)] == [True, True, True, False, False]
    assert all(policy.plan_for(step) is bounded for step in (3, 4, 1000))
    assert exact == ExchangePlan.exact(3)
    assert bounded == ExchangePlan((BOUNDED,) * 3)


def test_plans_that_differ_have_other_digests():
    plans = [
        plan_of(), plan_of(bound=0.02), plan_of(gradient_bound=0.4), plan_of(relative=False), plan_of(coded_ids=False),
        plan_of(rules=[{"tables": "c_ad", "exact": True}]), plan_of(rules=[{"tables": "c_site", "exact": True}]),
        plan_of(kind="exact"), plan_of(kind="exact", coded_ids=False), plan_of(kind="cast"), plan_of(kind="cast", cast="bf16"),
    ]  # fmt: skip
    assert len({plan.digest for plan in plans}) == len(plans)
    assert plan_of().digest == plan_of().digest
