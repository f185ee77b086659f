"""Predicted times against their formula, and choices against all that there are."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.cost import link as cost
from laconic.cost.link import CodecCost, Link, cheapest, direction_seconds, total
from laconic.errors import ConfigError

LINK = Link(latency_s=0.001, bytes_per_s=1000)
COSTS = st.builds(CodecCost, st.floats(0, 1), st.floats(0, 1), st.floats(0, 3000))
TABLES = st.lists(st.lists(COSTS, min_size=1, max_size=3), max_size=4)
ROUNDING = 1e-12  # sums of a dozen numbers below 3000 / 1000 round by less


def seconds(tables, chosen, overlap_s):
    return direction_seconds(LINK, [t[i] for t, i in zip(tables, chosen, strict=True)], overlap_s)


def best(tables, overlap_s):
    return min(seconds(tables, chosen, overlap_s) for chosen in product(*(range(len(t)) for t in tables)))


def test_a_link_takes_its_latency_and_then_its_bandwidth():
    assert LINK.seconds(0) == 0.001
    assert LINK.seconds(500) == 0.501


@pytest.mark.parametrize(
    ("overlap_s", "expected"), [(0, 0.3 + 0.501), (0.2, 0.3 + 0.301), (0.501, 0.3), (9, 0.3)]
)
def test_computation_hides_the_wire_but_neither_encoding_nor_decoding(overlap_s, expected):
    costs = [CodecCost(0.05, 0.05, 100), CodecCost(0.15, 0.05, 400)]
    assert total(costs) == CodecCost(0.2, 0.1, 500)
    assert direction_seconds(LINK, costs, overlap_s) == pytest.approx(expected, rel=1e-15)


@given(TABLES, st.floats(0, 15))
def test_no_other_choice_is_cheaper(tables, overlap_s):
    chosen = cheapest(LINK, tables, overlap_s)
    assert seconds(tables, chosen, overlap_s) <= best(tables, overlap_s) + ROUNDING


@given(st.lists(st.lists(COSTS, min_size=3, max_size=3), min_size=3, max_size=3), st.floats(0, 1))
def test_no_other_choice_is_cheaper_where_tables_compete_for_the_overlap(tables, share):
    """Between the fewest bytes possible and those of the least CPU time."""
    least = LINK.seconds(sum(min(c.bytes_sent for c in table) for table in tables))
    most = LINK.seconds(sum(min(table, key=lambda c: c.cpu_s).bytes_sent for table in tables))
    overlap_s = least + share * (most - least)
    chosen = cheapest(LINK, tables, overlap_s)
    assert seconds(tables, chosen, overlap_s) <= best(tables, overlap_s) + ROUNDING


def test_without_overlap_each_table_has_its_least_cpu_and_wire_time():
    slow_codec = [CodecCost(0, 0, 100), CodecCost(0.2, 0, 10)]
    quick_codec = [CodecCost(0, 0, 100), CodecCost(0.01, 0, 10)]
    assert cheapest(LINK, [slow_codec, quick_codec, slow_codec]) == (0, 1, 0)


def test_a_wire_that_is_hidden_is_free():
    assert cheapest(LINK, [[CodecCost(0, 0, 100), CodecCost(0.01, 0, 10)]] * 3, 0.301) == (0, 0, 0)


def test_only_as_much_is_compressed_as_does_not_hide():
    tables = [[CodecCost(0, 0, 100), CodecCost(0.01, 0, 10)]] * 3
    assert sorted(cheapest(LINK, tables, 0.211)) == [0, 0, 1]


def test_ties_go_to_the_first_candidate():
    same = CodecCost(0.1, 0.1, 10)
    for overlap_s in (0, 0.015, 1):
        assert cheapest(LINK, [[same, same, same]] * 2, overlap_s) == (0, 0)


def test_more_tables_than_the_front_has_room_for_lose_less_than_its_spacing(monkeypatch):
    """Each of T selections of K points gives away one gap at most, a (K - 1)th of the front at its widest here."""
    tables = [
        [CodecCost(0, 0, 100 + 7 * t), CodecCost(0.013 * (t + 1), 0, 50), CodecCost(0.03 * (t + 2), 0, 9)]
        for t in range(8)
    ]
    exact = seconds(tables, cheapest(LINK, tables, 0.5), 0.5)
    assert exact == pytest.approx(best(tables, 0.5), abs=ROUNDING)
    monkeypatch.setattr(cost, "_LONGEST_FRONT", 16)
    assert exact <= seconds(tables, cheapest(LINK, tables, 0.5), 0.5) <= 1.1 * exact


@pytest.mark.parametrize(("latency_s", "bytes_per_s"), [(-1, 1), (0, 0), (math.nan, 1), (0, math.inf)])
def test_a_link_that_cannot_be_is_refused(latency_s, bytes_per_s):
    with pytest.raises(
        ConfigError, match=r"^link: expected a latency >= 0 and a bandwidth > 0, both finite, got"
    ):
        Link(latency_s, bytes_per_s)


@pytest.mark.parametrize("numbers", [(-1, 0, 0), (0, math.nan, 0), (0, 0, math.inf)])
def test_a_cost_that_cannot_be_is_refused(numbers):
    with pytest.raises(
        ConfigError, match=r"^codec cost: expected finite numbers >= 0, got .* measure it again$"
    ):
        CodecCost(*numbers)


def test_a_table_without_candidates_is_refused():
    with pytest.raises(ConfigError, match=r"^cost: expected at least one candidate for table 1, got none$"):
        cheapest(LINK, [[CodecCost(0, 0, 0)], []])
