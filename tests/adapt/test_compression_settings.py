"""``[compression]``: its words become a ``Compression``, and its policy decides which words count."""

from __future__ import annotations

import re

import pytest

from laconic import Bounded, BoundedRows, Cast, Compression, Exact, LargeFirst, Levels, Lossless, Rounded
from laconic.adapt import BUDGET
from laconic.adapt.exchange_words import MOVED
from laconic.adapt.settings import _WIDE, CompressionSettings
from laconic.config import parse
from laconic.errors import ConfigError
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.train import dense
from laconic.train.ranks import Ranks
from laconic.train.settings import RunSettings
from laconic.train.trainer import Trainer
from tests.cases import each
from tests.train import small_runs

DATA = '[data]\nkind = "synthetic"\n'
NAMES = ("c_user", "c_site", "c_ad")
ROWS = BoundedRows(0.03, relative_to="range")
GRADIENTS = BoundedRows(0.5, relative_to="rms", rounding="unbiased")

FILE = """
[compression]
rows = { method = "bounded", rounding = "unbiased" }
gradients = { method = "bounded" }

[compression.tables.c_user]
rows.bound = 0.04
gradients = "exact"
"""


def settings_of(text="", *overrides):
    return parse(DATA + text, RunSettings, overrides, where="run.toml").compression


def value_of(text="", *overrides):
    return settings_of(text, *overrides).compression()


def effective(policy, text="", *overrides):
    return settings_of(text, f"compression.policy={policy}", *overrides).effective()


def refused(text, *overrides):
    with pytest.raises(ConfigError) as caught:
        settings_of(text, *overrides)
    return str(caught.value)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(FILE)
    return path


def test_without_a_word_it_is_the_default_of_python():
    assert value_of() == CompressionSettings().compression() == Compression()


@each(
    ("word", "codec"),
    [("exact", None), ("lossless", Lossless()), ("fp16", Cast("fp16")), ("int4", Cast("int4"))],
)
def test_a_word_stands_for_a_codec_in_a_file_and_in_an_override(word, codec):
    assert value_of(f'[compression]\nrows = "{word}"').rows == codec
    assert value_of("", f"compression.gradients={word}").gradients == codec


def test_words_of_a_bound_that_are_left_out_are_the_defaults():
    given = value_of("[compression]\nrows = { bound = 0.02 }", "compression.gradients.rounding=nearest")
    assert given.rows == BoundedRows(0.02, relative_to="range")
    assert given.gradients == BoundedRows(0.06, relative_to="rms")
    assert value_of('[compression.rows]\nrelative_to = "none"').rows == BoundedRows(0.0015)
    assert value_of("[compression.rows]\nbound = 0.02", "compression.rows.bound=0.05").rows.bound == 0.05


METHODS = {
    '"exact"': Exact(),
    '"lossless"': Lossless(),
    '"bf16"': Cast("bf16"),
    '"levels"': Levels(),
    '"rounded"': Rounded(),
    '"network"': Rounded(),
    '{ method = "bounded", bound = 0.1 }': Bounded(0.1, relative_to="rms", rounding="unbiased", seed=7),
    '{ method = "large", keep = 0.1, refresh = 9 }': LargeFirst(
        0.1, refresh=9, values=Bounded(0.05, relative_to="rms")
    ),
}


@each(("words", "method"), METHODS.items())
def test_every_method_of_dense_gradients_has_its_words(words, method):
    assert settings_of(f"[compression]\ndense = {words}").compression(seed=7).dense == method


def test_a_network_adds_where_dense_gradients_are_its_own():
    class Adder:
        def unite(self, words):
            """What is left to a network."""

    adder = Adder()
    assert settings_of('[compression]\ndense = "network"').compression(network=adder).dense is adder
    assert settings_of('[compression]\ndense = "levels"').compression(network=adder).dense == Levels()


def tables_of(text, *overrides):
    base = "[compression]\nrows.bound = 0.03\ngradients.bound = 0.5\n"
    return value_of(base + text, *overrides).policy(NAMES).plan.tables


def test_the_last_pattern_that_matches_a_table_counts():
    user, site, ad = tables_of(
        """
        [compression.tables]
        "c_*" = { rows = { bound = 0.1 } }
        "*site" = "exact"
        "c_a?" = { gradients = { bound = 2.0 } }
        """
    )
    assert user == TableCodecs(BoundedRows(0.1, relative_to="range"), GRADIENTS, ("backward",))
    assert site == TableCodecs()
    assert ad == TableCodecs(ROWS, BoundedRows(2.0, relative_to="rms", rounding="unbiased"), ("forward",))


def test_a_table_may_be_bounded_where_the_others_are_not_and_the_reverse():
    user, site, _ = tables_of(
        '[compression.tables]\nc_user = { rows = { bound = 0.1 } }\nc_site = { rows = "int8" }',
        "compression.rows=exact",
    )
    assert user.forward == BoundedRows(0.1, relative_to="range")
    assert (site.forward, site.backward) == (Cast("int8"), GRADIENTS)


def test_a_table_rounds_as_it_says():
    text = '[compression.tables.c_ad]\nrows = { bound = 0.1, rounding = "nearest" }'
    _, site, ad = tables_of(text, "compression.rows.rounding=unbiased")
    assert ad.forward == BoundedRows(0.1, relative_to="range")
    assert site.forward == BoundedRows(0.03, relative_to="range", rounding="unbiased")


def test_an_override_may_name_a_table():
    assert tables_of("", "compression.tables.c_ad=exact")[2] == TableCodecs()
    assert tables_of("", "compression.tables.c_ad.rows=exact")[2] == TableCodecs(
        None, GRADIENTS, ("backward",)
    )


@each(
    ("text", "message"),
    [
        ("rows.bound = 0.0", "run.toml: compression.rows.bound: expected a value > 0, got 0.0"),
        ("rows.bound = nan", "run.toml: compression.rows.bound: expected a finite number, got nan"),
        (
            'rows = "bonded"',
            "run.toml: compression.rows.method: expected 'bounded', 'exact', 'lossless', 'fp16', 'bf16', 'int8' or "
            "'int4', got 'bonded'",
        ),
        (
            "rows = 0.05",
            'run.toml: compression.rows: expected a method, as "exact", or { bound = 0.01 }, got 0.05',
        ),
        (
            'rows.relative_to = "RMS"',
            "run.toml: compression.rows.relative_to: expected 'range', 'rms' or 'none', got 'RMS'",
        ),
        (
            'rows.rounding = "down"',
            "run.toml: compression.rows.rounding: expected 'nearest' or 'unbiased', got 'down'",
        ),
        (
            'rows = { method = "fp16", bound = 0.1 }',
            "run.toml: compression.rows: 'fp16' has no bound; leave it out",
        ),
        (
            'tables.c_ad.gradients = { method = "exact", rounding = "nearest" }',
            "run.toml: compression.tables.c_ad.gradients: 'exact' has no rounding; leave it out",
        ),
        (
            "tables.c_ad.bound = 0.1",
            "run.toml: compression.tables.c_ad.bound: no such setting (known: rows, gradients)",
        ),
        (
            'dense = { method = "levels", keep = 0.1 }',
            "run.toml: compression.dense: 'levels' has no keep; leave it out",
        ),
        (
            'dense = "coarse"',
            "run.toml: compression.dense.method: expected 'exact', 'lossless', 'bf16', 'levels', 'bounded', 'large', "
            "'rounded' or 'network', got 'coarse'",
        ),
        (
            'decay.kind = "linear"',
            "run.toml: compression.decay: expected steps > 0 where kind is 'linear', got 0; say at which step bounds "
            "are their own",
        ),
        ("decay.k = 0.5", "run.toml: compression.decay.k: expected a value >= 1, got 0.5"),
        ("decay.steps = -1", "run.toml: compression.decay.steps: expected a value >= 0, got -1"),
        (
            'decay.kind = "closed_loop"',
            "run.toml: compression.decay.kind: expected 'none', 'step', 'linear', 'log' or 'constant', got "
            "'closed_loop', which is gone; a wider bound saves as much",
        ),
        ("budget = 1.0", "run.toml: compression.budget: expected a value > 0 and < 1, got 1.0"),
        ("warmup = -1", "run.toml: compression.warmup: expected a value >= 0, got -1"),
        (
            'policy = "automatic"',
            "run.toml: compression.policy: expected 'fixed', 'auto' or a .toml file that laconic tune wrote, got "
            "'automatic'",
        ),
    ],
)
def test_what_is_no_setting_is_refused_with_what_would_be(text, message):
    assert refused(f"[compression]\n{text}") == message


@each("name", MOVED)
def test_every_word_of_before_is_refused_with_the_word_of_today(name):
    group, _, word = name.rpartition(".")
    text = f"[{group}]\n{word} = 1\n" if group else ""
    if text:
        assert refused(text) == f"run.toml: {name}: {MOVED[name]}"
    assert refused("", f"{name}=1") == f"--set: {name}: {MOVED[name]}"


def test_every_word_of_before_has_a_line_and_comes_before_other_mistakes():
    text = "[exchange]\nbound = 0.1\nkind = 'exact'\n[dense]\nsend = 'levels'\n[train]\nbacth = 1"
    assert refused(text).splitlines() == [
        "run.toml: exchange.kind: is compression.rows and compression.gradients now",
        "run.toml: exchange.bound: is compression.rows.bound now",
        "run.toml: dense.send: is compression.dense now",
    ]


def test_what_words_of_before_are_now_exists():
    """Each names settings that a run has."""
    known = settings_of().model_dump()
    for what in MOVED.values():
        for name in re.findall(r"compression((?:\.\w+)+)", what):
            here = known
            for part in name[1:].split("."):
                assert part in here, what
                here = here[part]


def test_a_fixed_policy_is_what_the_run_says():
    settings = settings_of("[compression]\nrows.bound = 0.02")
    assert settings.policy == "fixed"
    assert settings.effective() is settings


def test_auto_is_what_the_run_says_guarded_and_economical():
    found = effective("auto", "[compression]\nrows.bound = 0.02")
    assert found.budget == BUDGET == 0.001
    assert found.economy
    assert found.rows.bound == 0.02


def test_bounds_that_the_run_does_not_set_may_become_wide_under_auto():
    fixed, auto = settings_of(), effective("auto")
    assert (auto.rows.bound, auto.gradients.bound) == (_WIDE["rows"], _WIDE["gradients"])
    assert auto.rows.bound > fixed.rows.bound
    assert auto.gradients.bound > fixed.gradients.bound
    set_one = effective("auto", "[compression.gradients]\nbound = 0.2")
    assert (set_one.rows.bound, set_one.gradients.bound) == (_WIDE["rows"], 0.2)


def test_auto_keeps_a_budget_that_the_run_has():
    assert effective("auto", "[compression]\nbudget = 0.01").budget == 0.01


@each(("name", "method"), [("rows", "exact"), ("gradients", "fp16")])
def test_auto_needs_bounds_to_adapt(name, method):
    text = (
        f"compression.policy: 'auto' adapts bounds, got compression.{name} = {method!r}; use policy 'fixed'"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        effective("auto", "", f"compression.{name}={method}")


def test_what_a_file_says_replaces_what_the_run_says(file):
    found = effective(file, '[compression]\nrows = "exact"\ngradients = { bound = 0.5 }')
    assert (found.rows.method, found.rows.rounding, found.gradients.bound) == ("bounded", "unbiased", 0.5)
    assert found.compression().policy(NAMES).plan.tables[0] == TableCodecs(
        BoundedRows(0.04, relative_to="range", rounding="unbiased"), None
    )


def test_what_a_file_leaves_out_is_as_the_run_says(file):
    found = effective(file, '[compression]\nwarmup = 9\nids = false\nbudget = 0.002\ndense = "levels"')
    assert (found.warmup, found.ids, found.budget, found.dense.method) == (9, False, 0.002, "levels")


def test_tables_in_both_places_are_an_error_that_says_where_to_put_them(file):
    with pytest.raises(ConfigError) as caught:
        effective(file, "[compression.tables]\nc_ad = 'exact'")
    assert str(caught.value) == (
        f"compression.policy: {file} has tables, and so has compression.tables of the run; "
        "move those of the run into the file"
    )


def test_a_file_that_is_not_there_or_no_policy_is_named(tmp_path, file):
    with pytest.raises(ConfigError, match=r"/none\.toml: no such file$"):
        effective(tmp_path / "none.toml")
    file.write_text("[compression.rows]\nbuond = 0.1")
    with pytest.raises(
        ConfigError, match=r"policy\.toml: compression\.rows\.buond: no such setting; did you mean 'bound'"
    ):
        effective(file)
    file.write_text("[compression]\n[train]\nsteps = 1")
    with pytest.raises(ConfigError, match=r"policy\.toml: train: no such setting"):
        effective(file)


@pytest.mark.parametrize(
    ("policy", "text", "bypasses"),
    [
        ("fixed", "", False),
        ("fixed", "economy = true\n", True),
        ("auto", "", True),
        ("file", "", True),
    ],
)
def test_an_economical_policy_also_lets_dense_gradients_travel_as_they_are(
    tmp_path, monkeypatch, policy, text, bypasses
):
    if policy == "file":
        policy = tmp_path / "policy.toml"
        policy.write_text("[compression]\neconomy = true\n")
    given = {}
    monkeypatch.setattr(
        dense, "register_ddp", lambda _, compression, **how: given.update(how, warmup=compression.warmup)
    )
    text = f"{DATA}[compression]\nwarmup = 3\n{text}"
    dense.compress_gradients(None, parse(text, RunSettings, (f"compression.policy={policy}",)), None)
    assert given["bypass"] is bypasses
    assert given["warmup"] == 3


def test_a_trainer_without_a_policy_of_its_own_follows_the_file_of_the_run(file):
    file.write_text("[compression]\nrows = 'exact'\ngradients = 'exact'\n")
    settings = small_runs.settings_of(f"compression.policy={file}")
    made = Trainer(settings, small_runs.source_of(settings).schema, Ranks(0, 1))
    assert made.rows.policy.plan_for(0) == ExchangePlan.exact(4)
