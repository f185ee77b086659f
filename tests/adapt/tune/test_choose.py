"""Bounds within a budget: the loosest that it allows, exactness where nothing else fits, and the reason."""

from __future__ import annotations

import pytest

from laconic.adapt import AIM, MOST_GRADIENTS_ERROR, MOST_ROWS_ERROR
from laconic.adapt.tune.curves import Curve
from laconic.errors import ConfigError
from tests.adapt.tune.curves import gradients_curve, rows_curve, table, tuned_of

NONE, ALL = 1e-12, 0.999  # budgets: of nothing that is offered, and of everything


def test_a_large_budget_allows_the_loosest_bounds():
    tuned = tuned_of([table()], budget=ALL)
    assert (tuned.tables[0].forward.chosen.bound, tuned.tables[0].backward.chosen.bound) == (0.1, 0.5)
    assert tuned.bytes_sent == tuned.lower_bound == 250
    assert tuned.harm == pytest.approx(0.04 * 0.04 + 0.001 * 0.04, rel=1e-12)


def test_no_budget_leaves_everything_exact():
    tuned = tuned_of([table()], budget=NONE)
    assert (tuned.tables[0].forward.chosen.bound, tuned.tables[0].backward.chosen.bound) == (None, None)
    assert tuned.bytes_sent == 2800
    assert tuned.harm == 0


@pytest.mark.parametrize("budget", [1e-5, 1e-4, 5e-4, 1e-3, 1e-2])
def test_damage_stays_within_the_budget_with_room_for_what_comes_true(budget):
    tables = [table(f"t{i}", forward=rows_curve(sensitivity=0.04 * 3**i)) for i in range(5)]
    tuned = tuned_of(tables, budget)
    assert tuned.harm <= AIM * budget
    assert tuned.lower_bound <= tuned.bytes_sent


def test_a_sensitive_table_gets_the_tighter_bound():
    calm, nervous = (table(name, forward=rows_curve(s)) for name, s in (("calm", 0.004), ("nervous", 0.4)))
    tuned = tuned_of([calm, nervous], budget=0.003)
    assert (tuned.tables[0].forward.chosen.bound, tuned.tables[1].forward.chosen.bound) == (0.1, 0.01)


def test_doubt_counts_as_harm():
    sure, doubtful = rows_curve(0.04), rows_curve(0.04, se=0.4)
    tuned = tuned_of([table("a", forward=sure), table("b", forward=doubtful)], budget=0.004)
    assert tuned.tables[0].forward.chosen.bound > tuned.tables[1].forward.chosen.bound
    assert doubtful.harm(0) == pytest.approx(0.44 * 0.0025, rel=1e-12)


def test_a_sensitivity_below_zero_is_noise():
    assert rows_curve(-5.0, se=0.01).harm(1) == pytest.approx(0.01 * 0.01, rel=1e-12)


def test_errors_that_rival_the_signal_are_not_offered_whatever_their_harm():
    harmless = table(
        forward=rows_curve(0.0, error=(0.01, MOST_ROWS_ERROR, MOST_ROWS_ERROR + 0.01)),
        backward=gradients_curve(0.0, error=(MOST_GRADIENTS_ERROR + 0.01, 0.9)),
    )
    tuned = tuned_of([harmless], budget=0.5)
    assert tuned.tables[0].forward.chosen.bound == 0.03
    assert tuned.tables[0].backward.chosen.bound is None


def test_the_reason_says_what_the_next_bound_would_do():
    tuned = tuned_of([table()], budget=0.001)
    assert (
        tuned.tables[0].forward.chosen.reason
        == "8.0x fewer bytes; loss +0.0400%; 0.1 would save 50% more at +0.1200%"
    )
    assert (
        tuned.tables[0].backward.chosen.reason
        == "8.0x fewer bytes; loss +0.0040%; the loosest that is offered"
    )
    exact = tuned_of([table()], budget=NONE).tables[0].forward.chosen
    assert exact.reason == "exact; loss +0.0000%; 0.01 would save 75% more at +0.0100%"


def test_the_reason_says_when_the_next_bound_would_save_nothing():
    flat = Curve(
        bounds=(0.01, 0.03), bytes_sent=(100.0, 104.0), bytes_exact=400.0, error=(0.01, 0.04),
        sensitivity=0.01, sensitivity_se=0.0,
    )  # fmt: skip
    tuned = tuned_of([table(forward=flat, homogenization=(1.0, 0.75))], budget=ALL)
    assert (
        tuned.tables[0].forward.chosen.reason
        == "4.0x fewer bytes; loss +0.0100%; 0.03 would save nothing more"
    )


def test_the_class_of_a_table_is_that_of_its_index_at_the_reference_bound():
    medium = table(homogenization=(1.0, 0.75, 0.25))
    assert (medium.homogenization_index, medium.paper_class) == (0.75, "medium")


def test_a_curve_has_as_many_figures_as_bounds():
    with pytest.raises(
        ConfigError, match=r"^curves: expected as many bytes and errors as bounds, got 3 and 1 for 3$"
    ):
        rows_curve(error=(0.1,))
