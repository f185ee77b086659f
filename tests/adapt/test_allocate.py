"""Choices within a budget of harm, against all choices there are."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.adapt.allocate import Allocation, Option, allocate
from laconic.errors import ConfigError

EIGHTHS = st.integers(-8, 80).map(lambda n: n / 8)  # many ties, and points on the edges of hulls
ANY = st.floats(-1, 1e3)


def instances(figures):
    options = st.lists(st.builds(Option, figures, figures), min_size=1, max_size=5)
    return st.lists(options, max_size=4)


INSTANCES = instances(EIGHTHS) | instances(ANY)
SPARE = st.floats(0, 50) | st.integers(0, 400).map(lambda n: n / 8)

# of a bound by hand: one rounding, and half an ulp of the budget at its price; prices and budgets here are below 8
ROUNDING = 2**-48

# their exact total is above the float nearest to it
TENTHS = [[Option(1, 0.1)]] * 13


def harm(choice):
    return math.fsum(max(option.harm, 0.0) for option in choice)


def cost(choice):
    return math.fsum(option.cost for option in choice)


def least_damage(tables):
    return harm(min(table, key=lambda option: max(option.harm, 0.0)) for table in tables)


def cheapest(tables, budget):
    return min(cost(choice) for choice in product(*tables) if harm(choice) <= budget)


def largest_saving(tables):
    """Upper limit of what one step on a hull saves: from the dearest to the cheapest option of a table."""
    return max((max(o.cost for o in table) - min(o.cost for o in table) for table in tables), default=0.0)


@given(INSTANCES, SPARE)
def test_the_choice_is_one_of_each_table_and_within_the_budget(tables, spare):
    budget = least_damage(tables) + spare
    allocation = allocate(tables, budget)
    choice = [table[index] for table, index in zip(tables, allocation.chosen, strict=True)]
    assert allocation.harm == harm(choice) <= budget
    assert allocation.cost == cost(choice)


@given(INSTANCES, SPARE)
def test_the_best_choice_is_between_the_lower_bound_and_ours(tables, spare):
    budget = least_damage(tables) + spare
    allocation = allocate(tables, budget)
    assert allocation.lower_bound <= cheapest(tables, budget) <= allocation.cost


@given(INSTANCES, SPARE)
def test_the_gap_is_at_most_one_step(tables, spare):
    allocation = allocate(tables, least_damage(tables) + spare)
    # three figures and two sums, each rounded once
    rounding = 2**-50 * (abs(allocation.cost) + largest_saving(tables))
    assert allocation.cost <= allocation.lower_bound + largest_saving(tables) + rounding


@given(INSTANCES, st.lists(SPARE, max_size=6))
def test_more_budget_never_raises_the_bound(tables, spares):
    least = least_damage(tables)
    bounds = [allocate(tables, least + spare).lower_bound for spare in sorted(spares)]
    assert bounds == sorted(bounds, reverse=True)


@given(INSTANCES, SPARE)
def test_no_single_table_could_still_do_better(tables, spare):
    budget = least_damage(tables) + spare
    chosen = allocate(tables, budget).chosen
    choice = [table[index] for table, index in zip(tables, chosen, strict=True)]
    for table, options in enumerate(tables):
        for option in options:
            other = [*choice[:table], option, *choice[table + 1 :]]
            assert option.cost >= choice[table].cost or harm(other) > budget


@given(INSTANCES)
def test_with_budget_for_everything_it_is_the_cheapest_of_each_table(tables):
    allocation = allocate(tables, 1e6)
    assert allocation.cost == allocation.lower_bound == cost(min(t, key=lambda o: o.cost) for t in tables)


def test_steps_are_taken_in_the_order_of_what_they_save_per_damage():
    a = [Option(10, 0), Option(4, 1), Option(3, 2)]
    b = [Option(10, 0), Option(7, 1), Option(5, 2)]
    allocations = [allocate([a, b], budget) for budget in range(5)]
    assert [allocation.chosen for allocation in allocations] == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 2)]
    assert all(allocation.cost - allocation.lower_bound <= ROUNDING for allocation in allocations)


def test_budget_left_over_goes_to_options_off_the_hull():
    # from 10 to 0 at harm 4 is the hull; half of it does not fit into 2, the option above it does
    allocation = allocate([[Option(10, 0), Option(7, 2), Option(0, 4)]], 2)
    assert (allocation.chosen, allocation.cost, allocation.harm) == ((1,), 7, 2)
    assert 5 - ROUNDING <= allocation.lower_bound <= 5


def test_the_fill_prefers_the_largest_saving():
    small, large = [Option(10, 0), Option(9, 2), Option(0, 4)], [Option(10, 0), Option(7, 2), Option(0, 4)]
    assert allocate([small, large], 2).chosen == (0, 1)
    assert allocate([large, large], 2).chosen == (1, 0)


def test_ties_go_to_the_smaller_index():
    same = [Option(5, 1), Option(5, 1), Option(1, 2), Option(1, 2)]
    assert allocate([same], 1).chosen == (0,)
    assert allocate([same], 2).chosen == (2,)
    assert allocate([same, same], 3).chosen == (2, 0)


def test_negative_damage_is_no_damage_and_makes_no_room_for_others():
    noisy, harmful = [Option(5, 0), Option(3, -4)], [Option(5, 0), Option(1, 2)]
    allocation = allocate([noisy, harmful], 1)
    assert (allocation.chosen, allocation.harm) == ((1, 0), 0)


def test_the_damage_of_an_allocation_is_budget_enough_for_it():
    assert allocate(TENTHS, allocate(TENTHS, 9).harm).chosen == (0,) * 13


def test_the_bound_covers_totals_that_meet_the_budget_by_rounding():
    dear = [Option(1000, 0), Option(0, 1e-6)]  # at 1e9 for a unit of harm, what was rounded off counts
    allocation = allocate([*TENTHS, dear], float(13 * Fraction(0.1)))
    assert allocation.lower_bound <= allocation.cost == 1013


def test_no_tables_cost_nothing():
    assert allocate([], 0) == Allocation((), 0.0, 0.0, 0.0)


def test_a_budget_below_the_least_damage_is_refused_with_both():
    message = (
        r"^allocate: expected a budget of at least 1\.5, the least harm possible, got 1\.0; "
        r"raise it or offer options that do less$"
    )
    with pytest.raises(ConfigError, match=message):
        allocate([[Option(1, 0.5), Option(0, 3)], [Option(1, 1)], [Option(1, -7)]], 1.0)


@pytest.mark.parametrize("budget", [math.nan, math.inf])
def test_a_budget_is_finite(budget):
    with pytest.raises(ConfigError, match=rf"^allocate: expected a finite budget, got {budget}$"):
        allocate([], budget)


def test_a_table_without_options_is_refused():
    with pytest.raises(ConfigError, match=r"^allocate: expected at least one option for table 1, got none$"):
        allocate([[Option(1, 1)], []], 5)


@pytest.mark.parametrize(("cost", "harm"), [(math.nan, 0.0), (1.0, math.inf)])
def test_an_option_is_finite(cost, harm):
    message = rf"^allocate: expected finite cost and harm, got {cost} and {harm}; leave such options out$"
    with pytest.raises(ConfigError, match=message):
        Option(cost, harm)
