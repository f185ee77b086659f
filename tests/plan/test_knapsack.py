"""The solver's choice is the best there is within the budget, against all choices there are."""

from __future__ import annotations

import ctypes
import math
from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.errors import ConfigError, PlanError
from laconic.plan.solve.highs import silent_stdout
from laconic.plan.solve.knapsack import Allocation, Option, solve

pytest.importorskip("scipy")

EIGHTHS = st.integers(-8, 80).map(lambda n: n / 8)  # many ties
ANY = st.floats(-1, 1e3)
SMALL = st.builds(
    Option,
    cost=st.integers(0, 1000).map(float),
    harm=st.integers(-3, 40).map(lambda harm: harm * 1e-6),
)


def instances(options, tables):
    return st.lists(st.lists(options, min_size=1, max_size=5), max_size=tables)


PARTS = instances(SMALL, 5)
TABLES = instances(st.builds(Option, EIGHTHS, EIGHTHS), 4) | instances(st.builds(Option, ANY, ANY), 4)
SPARE = st.floats(0, 50) | st.integers(0, 400).map(lambda n: n / 8)

# their exact total is above the float nearest to it
TENTHS = [[Option(1, 0.1)]] * 13


def harm(choice):
    return math.fsum(max(option.harm, 0.0) for option in choice)


def cost(choice):
    return math.fsum(option.cost for option in choice)


def picked(tables, allocation):
    return [table[index] for table, index in zip(tables, allocation.chosen, strict=True)]


def least_harm(tables):
    return harm(min(table, key=lambda option: max(option.harm, 0.0)) for table in tables)


def cheapest(tables, budget):
    return min((cost(choice) for choice in product(*tables) if harm(choice) <= budget), default=math.inf)


def gap(tables):
    """What HiGHS leaves: a millionth where all costs together are ten thousand."""
    return 2e-10 * math.fsum(abs(option.cost) for table in tables for option in table)


def check(tables, budget):
    """Compare with all choices; those that need the last 1e-5 of the budget may be missed."""
    found = solve(tables, budget)
    assert found.harm == harm(picked(tables, found)) <= budget
    assert found.cost == cost(picked(tables, found))
    assert cheapest(tables, budget) <= found.cost
    assert found.cost <= cheapest(tables, budget * (1 - 2e-5)) + gap(tables)
    assert found.lower_bound <= cheapest(tables, budget) + gap(tables)
    return found


@settings(max_examples=25)
@given(PARTS, st.floats(0, 1e-4))
def test_no_choice_within_the_budget_costs_less(parts, budget):
    if cheapest(parts, budget) == math.inf:
        with pytest.raises(PlanError, match="expected a budget of at least"):
            solve(parts, budget)
        return
    assert check(parts, budget).lower_bound <= solve(parts, budget).cost


@given(TABLES, SPARE)
def test_the_best_choice_is_between_the_lower_bound_and_ours(tables, spare):
    found = check(tables, least_harm(tables) + spare)
    assert found.lower_bound <= found.cost


@given(TABLES, st.lists(SPARE, max_size=4))
def test_more_budget_never_raises_the_bound(tables, spares):
    least = least_harm(tables)
    bounds = [solve(tables, least + spare).lower_bound for spare in sorted(spares)]
    assert all(later <= earlier + gap(tables) for earlier, later in pairwise(bounds))


@given(TABLES)
def test_with_budget_for_everything_it_is_the_cheapest_of_each_table(tables):
    found = solve(tables, 1e6)
    assert found.cost == pytest.approx(cost(min(t, key=lambda o: o.cost) for t in tables), abs=gap(tables))
    assert found.lower_bound == pytest.approx(found.cost, abs=gap(tables))


def test_what_saves_most_for_its_harm_comes_first():
    a = [Option(10, 0), Option(4, 1), Option(3, 2)]
    b = [Option(10, 0), Option(7, 1), Option(5, 2)]
    found = [solve([a, b], budget) for budget in range(5)]
    assert [allocation.chosen for allocation in found] == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 2)]
    assert all(allocation.cost - allocation.lower_bound <= gap([a, b]) for allocation in found)


def test_options_that_a_mix_of_others_would_beat_are_taken_where_they_fit():
    found = solve([[Option(10, 0), Option(7, 2), Option(0, 4)]], 2)
    assert (found.chosen, found.cost, found.harm) == ((1,), 7, 2)
    assert 5 <= found.lower_bound <= 7


def test_the_largest_saving_that_fits_is_taken():
    small, large = [Option(10, 0), Option(9, 2), Option(0, 4)], [Option(10, 0), Option(7, 2), Option(0, 4)]
    assert solve([small, large], 2).chosen == (0, 1)
    assert sorted(solve([large, large], 2).chosen) == [0, 1]


def test_of_equal_options_the_first_is_taken():
    same = [Option(5, 1), Option(5, 1), Option(1, 2), Option(1, 2)]
    assert solve([same], 1).chosen == (0,)
    assert solve([same], 2).chosen == (2,)
    assert sorted(solve([same, same], 3).chosen) == [0, 2]


def test_of_equal_costs_the_least_harm_is_taken():
    found = solve([[Option(5, 3e-5), Option(5, 1e-5), Option(5, 2e-5)]], 1e-3)
    assert found.chosen == (1,)


def test_a_greedy_choice_would_be_worse():
    # the large saving has the worse price per harm, and fits only alone
    parts = [[Option(100, 0), Option(10, 9e-5)], [Option(20, 0), Option(0, 1e-5)], [Option(0, 0)]]
    assert solve(parts, 9.5e-5).chosen == (1, 0, 0)


def test_negative_harm_is_no_harm_and_makes_no_room_for_others():
    noisy, harmful = [Option(5, 0), Option(3, -4)], [Option(5, 0), Option(1, 2)]
    found = solve([noisy, harmful], 1)
    assert (found.chosen, found.harm) == ((1, 0), 0)


def test_the_harm_of_an_allocation_is_budget_enough_for_it():
    assert solve(TENTHS, solve(TENTHS, 9).harm).chosen == (0,) * 13


def test_a_choice_that_meets_the_budget_exactly_is_taken():
    tables = [[Option(9, 0), Option(1, 0.5)], [Option(9, 0), Option(1, 0.25)]]
    assert solve(tables, 0.75).chosen == (1, 1)


def test_a_choice_that_exceeds_the_budget_by_less_than_the_solver_sees_is_not_taken():
    tables = [[Option(9, 0), Option(1, 0.5)], [Option(9, 0), Option(2, 0.5)]]
    found = solve(tables, 1 - 1e-9)
    assert (found.chosen, found.harm) == ((1, 0), 0.5)
    assert found.lower_bound <= found.cost


def test_the_bound_covers_totals_that_meet_the_budget_by_rounding():
    dear = [Option(1000, 0), Option(0, 1e-6)]  # at 1e9 for a unit of harm, what was rounded off counts
    found = solve([*TENTHS, dear], float(13 * Fraction(0.1)))
    assert found.lower_bound <= found.cost == 1013


def test_no_tables_cost_nothing():
    assert solve([], 0) == Allocation((), 0.0, 0.0, 0.0)


def test_a_budget_below_the_least_harm_is_refused_with_both():
    message = (
        r"^knapsack: expected a budget of at least 1\.5, the least harm possible, got 1; "
        r"raise it or offer options that harm less$"
    )
    with pytest.raises(PlanError, match=message):
        solve([[Option(1, 0.5), Option(0, 3)], [Option(1, 1)], [Option(1, -7)]], 1.0)


def test_options_that_are_not_finite_are_not_taken():
    assert solve([[Option(0, math.inf), Option(math.inf, 0), Option(7, 0)]], 1.0).chosen == (2,)
    with pytest.raises(ConfigError, match="item 0 has no option of finite cost and harm"):
        solve([[Option(0, math.nan)]], 1.0)
    with pytest.raises(ConfigError, match="item 1 has no option of finite cost and harm"):
        solve([[Option(1, 1)], []], 5)


def test_figures_next_to_nothing_are_figures():
    tiny = 1.1125369292536007e-308
    assert solve([[Option(tiny, 0.0)]], 0.0).cost == tiny
    assert solve([[Option(9, 0), Option(1, 5e-324)], [Option(2, 0), Option(1, 1)]], 5e-324).chosen == (1, 0)


def test_no_budget_takes_what_does_no_harm():
    assert solve([[Option(9, 0), Option(1, 1e-12), Option(5, -1e-6)]], 0.0).chosen == (2,)


@pytest.mark.parametrize("budget", [-1e-9, math.inf, math.nan])
def test_a_budget_that_is_none_is_refused(budget):
    with pytest.raises(ConfigError, match="expected a budget of 0 or more"):
        solve([[Option(0, 0)]], budget)


def test_what_the_solver_prints_is_not_among_the_output(capfd):
    with silent_stdout():
        ctypes.CDLL(None).printf(b"of the solver\n")
    print("of ours", flush=True)
    assert capfd.readouterr().out == "of ours\n"
