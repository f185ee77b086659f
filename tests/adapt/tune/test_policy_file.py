"""A policy file brings back exactly what was tuned, whatever tables are called, and says why."""

from __future__ import annotations

import json
import re

import pytest

from laconic.adapt.compression import Compression
from laconic.adapt.decay import Decay
from laconic.adapt.settings import PolicyFile
from laconic.adapt.tune.policy_file import policy_text
from laconic.adapt.tune.result import TuneResult
from laconic.codecs import BoundedRows, Cast
from laconic.config import parse
from laconic.errors import ConfigError, FormatError
from laconic.exchange.exchange_plan import TableCodecs
from laconic.report import read_any
from laconic.train.settings import RunSettings
from tests.adapt.tune.curves import gradients_curve, rows_curve, table, tuned_of
from tests.cases import each

ODD_NAMES = ("c[0]", "*", "what?", 'quo"ted', "back\\slash", "two\nlines", "del\x7f", "# comment", "größe 🙂")


def plan_of(tuned, tmp_path, run=""):
    path = tmp_path / "policy.toml"
    path.write_text(policy_text(tuned), encoding="utf-8")
    text = f'[compression]\npolicy = "{path}"\n{run}\n[data]\nkind = "synthetic"'
    names = [table.name for table in tuned.tables]
    return parse(text, RunSettings).compression.effective().compression().policy(names).plan


def expected(tuned):
    return tuple(
        TableCodecs(
            None if forward.bound is None else BoundedRows(forward.bound, relative_to="range"),
            None
            if backward.bound is None
            else BoundedRows(backward.bound, relative_to="rms", rounding="unbiased"),
        )
        for forward, backward in ((table.forward.chosen, table.backward.chosen) for table in tuned.tables)
    )


def test_every_choice_comes_back(tmp_path):
    never = 1e9  # so sensitive that only exactness fits
    tuned = tuned_of(
        [
            table("both"),
            table("rows", backward=gradients_curve(never)),
            table("gradients", forward=rows_curve(never)),
            table("none", forward=rows_curve(never), backward=gradients_curve(never)),
        ]
    )
    plan = plan_of(tuned, tmp_path)
    assert plan.tables == expected(tuned)
    assert [(codecs.forward is None, codecs.backward is None) for codecs in plan.tables] == [
        (False, False),
        (False, True),
        (True, False),
        (True, True),
    ]


def test_tables_may_be_called_anything(tmp_path):
    tables = [table(name, forward=rows_curve(0.0001 * 4**i)) for i, name in enumerate(ODD_NAMES)]
    tuned = tuned_of(tables)
    assert len({table.forward.chosen.bound for table in tuned.tables}) > 1
    assert plan_of(tuned, tmp_path).tables == expected(tuned)


def test_bounds_of_the_run_do_not_mix_with_those_of_the_file(tmp_path):
    tuned = tuned_of([table("a"), table("b", forward=rows_curve(0.1))])
    run = 'rows = { bound = 0.5, relative_to = "none" }\ngradients = "fp16"'
    assert plan_of(tuned, tmp_path, run).tables == expected(tuned)


def test_the_file_says_what_was_measured_and_why():
    assert policy_text(tuned_of([table("c_user", rows=92108)])) == (
        """# Bounds for "run.toml", from laconic tune. Edit as you like.
#
# measured   as 4 ranks, after 300 steps: loss 0.4813
# budget     loss +0.1 %
# predicted  loss +0.044 %; 2.80 kB -> 350 B a step by all ranks, 8.0x fewer;
#            no choice within the budget sends less than 350 B
#
# Bounds of rows are shares of their range, those of gradients of their root mean square. Behind
# each: what it saves and costs by itself, and what the next one would.

[compression]
rows = { method = "bounded", relative_to = "range", rounding = "nearest" }
gradients = { method = "bounded", relative_to = "rms", rounding = "unbiased" }

[compression.tables."c_user"]   # 92,108 rows; SC'24 class medium, homogenization index 0.750
rows.bound = 0.03               # 8.0x fewer bytes; loss +0.0400%; 0.1 would save 50% more at +0.1200%
gradients.bound = 0.5           # 8.0x fewer bytes; loss +0.0040%; the loosest that is offered
"""
    )


def test_a_result_has_the_totals_of_the_choices():
    result = tuned_of([table("a"), table("b", forward=rows_curve(0.1, error=(0.01, 0.04, 0.9)))])
    chosen = [side.chosen for tuned in result.tables for side in (tuned.forward, tuned.backward)]
    assert TuneResult.model_validate_json(result.model_dump_json()) == result
    assert result.bytes_sent == sum(choice.bytes_sent for choice in chosen)
    assert result.harm == pytest.approx(sum(choice.harm for choice in chosen), rel=1e-12)
    assert result.bytes_exact == 2 * 2800
    assert result.tables[1].forward.offered == (True, True, False)
    assert result.tables[0].paper_class == "medium"


WRITTEN_BEFORE = """# Bounds for "run.toml", from laconic tune. Edit as you like.
#
# measured   as 4 ranks, after 300 steps of exact training: loss 0.4813,
#            falling by 3.1 % of itself while steps grow e-fold

[exchange]
kind = "bounded"
relative = true
rounding = "nearest"    # of rows; gradients are always rounded without bias
axes = "own"            # the directions in which rows are long would save 9.1 % of the bytes

[[exchange.rules]]      # 92,108 rows; SC'24 class medium, homogenization index 0.750
tables = "c_user"
bound = 0.03            # 8.0x fewer bytes; loss +0.0400%; 0.1 would save 50% more at +0.1200%
gradient_bound = 0.5    # 8.0x fewer bytes; loss +0.0040%; the loosest that is offered
"""


def test_a_file_that_names_its_own_axes_is_read_as_one_without(tmp_path):
    read = parse(WRITTEN_BEFORE, PolicyFile).compression
    lines = [line for line in WRITTEN_BEFORE.splitlines() if not line.startswith("axes")]
    assert read == parse("\n".join(lines), PolicyFile).compression
    assert (read.tables["c_user"].rows.bound, read.tables["c_user"].gradients.bound) == (0.03, 0.5)


EXCHANGE = {
    "kind = 'bounded'": Compression(),
    "bound = 0.02\nrelative = false\nrounding = 'unbiased'\ngradient_bound = 0.4": Compression(
        rows=BoundedRows(0.02, rounding="unbiased"),
        gradients=BoundedRows(0.4, relative_to="rms", rounding="unbiased"),
    ),
    "kind = 'cast'\ncast = 'bf16'\nbound = 0.02": Compression(rows=Cast("bf16"), gradients=Cast("bf16")),
    "kind = 'cast'": Compression(rows=Cast("fp16"), gradients=Cast("fp16")),
    "kind = 'exact'\ncoded_ids = false\nwarmup_steps = 3": Compression(
        rows=None, gradients=None, ids=False, warmup=3
    ),
    """
    [[exchange.rules]]
    tables = "a*"
    exact = true
    [[exchange.rules]]
    tables = "b"
    exact = "rows"
    gradient_bound = 2.0
    [[exchange.rules]]
    tables = "c"
    bound = 0.1
    rounding = "unbiased"
    [[exchange.rules]]
    tables = "a*"
    exact = "gradients"
    """: Compression(
        tables={
            "b": {"rows": None, "gradients": BoundedRows(2.0, relative_to="rms", rounding="unbiased")},
            "c": {"rows": BoundedRows(0.1, relative_to="range", rounding="unbiased")},
            "a*": {"gradients": None},
        }
    ),
}


@each(("text", "expected"), EXCHANGE.items())
def test_a_file_that_has_exchange_means_what_it_meant(text, expected):
    assert parse(f"[exchange]\n{text}", PolicyFile).compression.compression() == expected


def test_what_adapts_is_read_from_a_file_that_has_exchange():
    text = "[exchange]\neconomy = true\nguard.budget = 0.01\ndecay = { kind = 'log', steps = 9 }"
    read = parse(text, PolicyFile).compression
    assert (read.economy, read.budget, read.decay) == (True, 0.01, Decay(kind="log", steps=9))


@each(
    ("text", "message"),
    [
        ("buond = 0.1", "policy.toml: compression.buond: no such setting"),
        ("rules = [{ tabels = 'a' }]", "policy.toml: exchange.rules: no such setting 'tabels'"),
    ],
)
def test_words_that_exchange_never_had_are_refused(text, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        parse(f"[exchange]\n{text}", PolicyFile, where="policy.toml")


def test_a_file_along_principal_axes_is_refused_with_what_to_do():
    text = WRITTEN_BEFORE.replace('axes = "own"', 'axes = "principal"')
    with pytest.raises(ConfigError) as caught:
        parse(text, PolicyFile, where="policy.toml")
    assert str(caught.value) == (
        "policy.toml: its bounds are of coordinates along principal axes, which are gone; run laconic tune again"
    )


def test_a_result_that_names_its_own_axes_is_read_and_one_along_principal_axes_refused(tmp_path):
    result = tuned_of([table("a")])
    path = tmp_path / "tune.json"
    path.write_text(json.dumps({"axes": "own", **result.model_dump(mode="json")}))
    assert read_any(path) == result
    path.write_text(json.dumps({"axes": "principal", **result.model_dump(mode="json")}))
    with pytest.raises(FormatError) as caught:
        read_any(path)
    assert str(caught.value) == (
        f"{path}: it was measured along principal axes, which are gone; run laconic tune again"
    )
