"""Compression: what it gives each table, what it shows, and what it refuses."""

from __future__ import annotations

import re

import pytest

from laconic import (
    Bounded,
    BoundedRows,
    Cast,
    Compression,
    Exact,
    Hybrid,
    IdList,
    LargeFirst,
    Levels,
    Lossless,
    Rounded,
)
from laconic.errors import ConfigError
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from tests.cases import each

NAMES = ["country", "county", "user"]
ROWS = BoundedRows(0.1, relative_to="range")
GRADIENTS = BoundedRows(0.5, relative_to="rms", rounding="unbiased")
BOTH = ("forward", "backward")
DEFAULT = TableCodecs(Compression().rows, Compression().gradients, BOTH)


def tables_of(compression: Compression) -> tuple[TableCodecs, ...]:
    return compression.policy(NAMES).plan_for(0).tables


def test_the_defaults_are_bounds_that_are_relative_and_gradients_right_on_average():
    default = Compression()
    assert default.rows == BoundedRows(0.0015, relative_to="range")
    assert default.gradients == BoundedRows(0.06, relative_to="rms", rounding="unbiased")
    assert (default.dense, default.ids, default.warmup) == (Levels(), True, 0)
    assert tables_of(default) == (DEFAULT,) * 3


def test_exact_sends_everything_as_it_is():
    exact = Compression.exact()
    assert exact.policy(NAMES).plan_for(0) == ExchangePlan.exact(3, coded_ids=False)
    assert exact.dense == Exact()


def test_lossless_codes_everything_and_changes_nothing():
    lossless = Compression.lossless()
    assert tables_of(lossless) == (TableCodecs(Lossless(), Lossless()),) * 3
    assert (lossless.dense, lossless.ids) == (Lossless(), True)


def test_the_last_pattern_that_matches_counts():
    compression = Compression(tables={"count*": None, "county": Cast("fp16"), "user": {"rows": ROWS}})
    assert tables_of(compression) == (
        TableCodecs(),
        TableCodecs(Cast("fp16"), Cast("fp16")),
        TableCodecs(ROWS, Compression().gradients, ("backward",)),
    )


@each(
    ("given", "codecs"),
    [
        ({"rows": ROWS, "gradients": GRADIENTS}, TableCodecs(ROWS, GRADIENTS)),
        ({"gradients": None}, TableCodecs(Compression().rows, None, ("forward",))),
        ({}, DEFAULT),
        (Lossless(), TableCodecs(Lossless(), Lossless())),
    ],
)
def test_what_a_table_leaves_out_is_as_for_all_others(given, codecs):
    assert tables_of(Compression(tables={"user": given}))[2] == codecs


def test_the_first_steps_are_exact_with_coded_ids():
    policy = Compression(warmup=2).policy(NAMES)
    assert [policy.plan_for(step) == ExchangePlan.exact(3) for step in range(4)] == [True, True, False, False]


def test_equal_values_are_equal_and_the_order_of_patterns_counts():
    one, other = {"a*": None, "*b": Lossless()}, {"*b": Lossless(), "a*": None}
    assert Compression(tables=one) == Compression(tables=dict(one))
    assert Compression(tables=one) != Compression(tables=other)
    assert Compression(tables={"a": None}) == Compression(tables={"a": {"rows": None, "gradients": None}})
    assert len({Compression(), Compression(warmup=0), Compression(warmup=1)}) == 2


@each(
    "compression",
    [
        Compression(),
        Compression.exact(),
        Compression(dense=LargeFirst(0.02), tables={"a*": None, "b": {"rows": ROWS}}, warmup=3),
    ],
)
def test_what_it_shows_can_be_pasted(compression):
    assert eval(repr(compression)) == compression


def test_it_keeps_no_door_open_to_what_it_was_made_of():
    tables = {"a": None}
    compression = Compression(tables=tables)
    tables["b"] = None
    assert compression.tables == {"a": None}


REFUSED = {
    "compression.rows: expected a codec of float32 or None, got 0.01; write laconic.Bounded(": {"rows": 0.01},
    "compression.gradients: expected a codec of float32 or None, got IdList()": {"gradients": IdList()},
    "compression.dense: expected a method, got None; write laconic.Exact()": {"dense": None},
    "compression.dense: expected a codec of float32 or None, got 'levels'; write laconic.Levels()": {
        "dense": "levels"
    },
    "compression.dense: got the class LargeFirst; write laconic.LargeFirst(0.01)": {"dense": LargeFirst},
    "compression.ids: expected True or False, got 1": {"ids": 1},
    "compression.warmup: expected at least 0 steps, got -1": {"warmup": -1},
    "compression.warmup: expected at least 0 steps, got True": {"warmup": True},
    "compression.tables: expected codecs by patterns of names, got ['a']; write {\"country*\": None}": {
        "tables": ["a"]
    },
    "compression.tables['a']: no such direction 'row' (known: rows, gradients)": {
        "tables": {"a": {"row": None}}
    },
    "compression.tables['a']: rows: expected a codec of float32 or None, got 0.1": {
        "tables": {"a": {"rows": 0.1}}
    },
    "compression.tables['a']: expected a codec of float32 or None, got 'exact'": {"tables": {"a": "exact"}},
    "compression.tables['a']: expected bounds of rows and of gradients, got BoundedRows(bound=0.1, ": {
        "tables": {"a": ROWS}
    },
    "compression.rows: expected a bound of at most 0.5 of the range, where one value stands for all of a block, "
    "got 0.6": {"rows": BoundedRows(0.6, relative_to="range")},
    "compression.gradients: expected a bound of at most 10 times the root mean square, where noise has ten times "
    "the energy of the values, got 11.0": {"gradients": BoundedRows(11.0, relative_to="rms")},
    "compression.tables['a']: rows: expected a bound of at most 0.5 of the range": {
        "tables": {"a": {"rows": Hybrid(0.6, relative_to="range")}}
    },
    "compression.dense: expected a bound of at most 10 times": {
        "dense": LargeFirst(values=Bounded(20.0, relative_to="rms"))
    },
}


@each(("message", "arguments"), REFUSED.items())
def test_what_cannot_be_meant_is_refused(message, arguments):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        Compression(**arguments)


def test_a_pattern_that_matches_no_table_is_refused():
    text = "compression.tables: no table matches 'contry*' (known: country, county, user)"
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        Compression(tables={"contry*": None}).policy(NAMES)
    with pytest.raises(ConfigError, match="no table matches 'User'"):  # patterns know capital letters
        Compression(tables={"User": None}).policy(NAMES)


@each("dense", [Exact(), Levels(), Rounded(), LargeFirst(), Bounded(0.05, relative_to="rms"), Cast("bf16")])
def test_every_method_of_dense_gradients_is_taken(dense):
    assert Compression(dense=dense).dense == dense
