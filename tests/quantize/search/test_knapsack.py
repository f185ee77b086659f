"""The solver's choice is the best there is, within the budget."""

from __future__ import annotations

import ctypes
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.errors import ConfigError, PlanError
from laconic.plan.solve.silent_solver import silent_stdout
from laconic.quantize.search.knapsack import Option, solve

pytest.importorskip("scipy")

option = st.builds(
    Option,
    cost=st.integers(0, 1000).map(float),
    harm=st.integers(-3, 40).map(lambda harm: harm * 1e-6),
)
parts = st.lists(st.lists(option, min_size=1, max_size=4), min_size=1, max_size=5)


def brute_force(parts, budget):
    """Costs of all choices within the budget."""
    for choice in itertools.product(*parts):
        if math.fsum(max(option.harm, 0) for option in choice) <= budget:
            yield math.fsum(option.cost for option in choice)


@settings(max_examples=25)
@given(parts, st.floats(0, 1e-4))
def test_no_choice_within_the_budget_costs_less(parts, budget):
    costs = list(brute_force(parts, budget))
    if not costs:
        with pytest.raises(PlanError, match="expected a budget of at least"):
            solve(parts, budget)
        return
    # what is kept back of the budget may forbid a choice that meets it exactly
    strict = list(brute_force(parts, budget * (1 - 2e-5)))
    try:
        found = solve(parts, budget)
    except PlanError:
        assert not strict
        return
    assert found.harm <= budget
    assert min(costs) <= found.cost <= min(strict, default=math.inf)
    assert found.lower_bound <= found.cost + 1e-6


def test_of_equal_costs_the_least_harm_is_taken():
    found = solve([[Option(5, 3e-5), Option(5, 1e-5), Option(5, 2e-5)]], 1e-3)
    assert found.chosen == (1,)


def test_a_greedy_choice_would_be_worse():
    # the large saving has the worse price per harm, and fits only alone
    parts = [[Option(100, 0), Option(10, 9e-5)], [Option(20, 0), Option(0, 1e-5)], [Option(0, 0)]]
    assert solve(parts, 9.5e-5).chosen == (1, 0, 0)


def test_options_that_are_not_finite_are_not_taken():
    assert solve([[Option(0, math.inf), Option(math.inf, 0), Option(7, 0)]], 1.0).chosen == (2,)
    with pytest.raises(ConfigError, match="part 0 has no option of finite cost and harm"):
        solve([[Option(0, math.nan)]], 1.0)


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
