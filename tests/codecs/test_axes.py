"""Axes: an orthonormal basis as a value, the one in which rows are long, and what bounds promise along it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.codecs import BoundedRows, Cast, Lossless
from laconic.codecs.axes import Axes, second_moment
from laconic.collectives.coder import Coder
from laconic.errors import ConfigError, PlanError
from laconic.exchange_plan import ExchangePlan


def random_axes(dim, seed=0):
    return Axes.of(np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))[0])


def stretched(rows, axes, lengths, seed=0):
    """Rows that are so long along each of the axes, on average."""
    along = np.random.default_rng(seed).normal(size=(rows, axes.dim)) * lengths
    return (along @ axes.matrix_DD.T).astype(np.float32)


def test_principal_axes_are_found_the_longest_first():
    axes, lengths = random_axes(6), np.array([9, 5, 3, 1, 0.5, 0.1])
    rows = stretched(4000, axes, lengths)
    found = Axes.principal(second_moment(np.zeros(len(rows), np.int64), rows))
    alike = np.abs(found.matrix_DD.T @ axes.matrix_DD)
    assert (alike.diagonal() > 0.99).all()


def test_a_table_with_long_rows_does_not_outweigh_one_with_as_many_short_ones():
    one, other = random_axes(4, 1), random_axes(4, 2)
    long, short = stretched(300, one, [1, 0, 0, 0]) * 1000, stretched(300, other, [1, 0, 0, 0])
    table_R = np.repeat([0, 3], 300)
    moment = second_moment(table_R, np.concatenate([long, short]))
    along = [float(axes.matrix_DD[:, 0] @ moment @ axes.matrix_DD[:, 0]) for axes in (one, other)]
    assert along[0] == pytest.approx(along[1], rel=1e-6)
    assert np.trace(moment) == pytest.approx(600)


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_a_table_that_is_not_finite_is_left_out(value):
    rows = stretched(20, random_axes(3), [1, 0.5, 0.2])
    bad = np.full((2, 3), value, np.float32)
    table_R = np.repeat([0, 1], [20, 2])
    alone = second_moment(table_R[:20], rows)
    both = second_moment(table_R, np.concatenate([rows, bad]))
    assert np.isfinite(both).all()
    assert np.array_equal(both, alone) == (not np.isfinite(value))


def test_rows_of_zeros_and_no_rows_have_no_moment():
    assert not second_moment(np.zeros(2, np.int64), np.zeros((2, 3), np.float32)).any()
    assert second_moment(np.zeros(0, np.int64), np.zeros((0, 3), np.float32)).shape == (3, 3)


def test_equal_axes_are_equal_and_plans_differ_where_axes_do():
    assert random_axes(3) == random_axes(3) != random_axes(3, 1)
    plans = [ExchangePlan.exact(2), *(ExchangePlan((), axes=random_axes(3, seed)) for seed in (0, 1))]
    assert len({plan.digest for plan in plans}) == 3


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Axes(2, b"123"), "expected 16 bytes for 2 dimensions, got 3"),
        (
            lambda: Axes.of(2 * np.eye(3)),
            "expected columns of length 1 at right angles, got products up to 3 off",
        ),
        (lambda: Axes.of(np.full((2, 2), np.nan)), "got products up to nan off"),
        (lambda: Axes.principal(np.full((2, 2), np.inf)), "expected finite second moments"),
    ],
)
def test_what_is_no_basis_is_refused(make, what):
    with pytest.raises(ConfigError, match=what):
        make()


def there_and_back(coder, rows, counts_MT):
    payload, sizes = coder.encode(rows, counts_MT, 7)
    out = np.full_like(rows, np.nan)
    coder.decode(payload.copy(), sizes, counts_MT, out)
    return out, sizes


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**16), st.integers(1, 24), st.sampled_from([None, 3]), st.floats(1e-3, 0.3))
def test_coordinates_are_within_the_bound_and_rows_within_its_length(seed, dim, dither, bound):
    axes = random_axes(dim, seed)
    rows = stretched(40, axes, np.geomspace(1, 0.01, dim), seed)
    coder = Coder([BoundedRows(bound=bound, dither=dither)], dim, torch.float32, axes)
    out, _ = there_and_back(coder, rows, np.array([[40]]))
    error = (out - rows).astype(np.float64)
    # what turning there and back rounds: dim products of each of two turns, beside the row's own length
    slack = 4 * dim * 2.0**-24 * np.abs(rows).sum(axis=1).max()
    assert np.abs(error @ axes.matrix_DD).max() <= bound * (1 + 1e-5) + slack
    assert np.linalg.norm(error, axis=1).max() <= bound * dim**0.5 * (1 + 1e-5) + slack


def test_only_bounded_rows_are_turned_and_what_is_exact_stays_so():
    axes = random_axes(8)
    rows = stretched(60, axes, np.geomspace(1, 0.001, 8))
    codecs = [None, Lossless(), BoundedRows(bound=0.01), Cast(dtype="fp16")]
    counts_MT = np.array([[10, 5, 10, 5], [10, 0, 15, 5]])
    turned, plain = (Coder(codecs, 8, torch.float32, basis) for basis in (axes, None))
    (out, sizes), (expected, others) = (there_and_back(coder, rows, counts_MT) for coder in (turned, plain))
    table_R = np.repeat(np.tile(np.arange(4), 2), counts_MT.ravel())
    for t in (0, 1, 3):
        assert out[table_R == t].tobytes() == expected[table_R == t].tobytes()
    assert out[table_R < 2].tobytes() == rows[table_R < 2].tobytes()
    assert out[table_R == 2].tobytes() != expected[table_R == 2].tobytes()
    assert (sizes[:, 2] < others[:, 2]).all()  # what is short along most axes takes fewer bytes
    assert (sizes[:, [0, 1, 3]] == others[:, [0, 1, 3]]).all()


def test_axes_of_other_dimensions_are_refused_where_rows_would_be_turned():
    with pytest.raises(PlanError, match="the tables have 4 dimensions, the plan's axes 8"):
        Coder([BoundedRows()], 4, torch.float32, random_axes(8))
    Coder([None], 4, torch.float32, random_axes(8))


def test_a_value_that_is_not_finite_leaves_none_of_its_row_finite_and_the_others_alone():
    rows = np.ones((3, 4), np.float32)
    rows[1, 2] = np.inf
    coder = Coder([BoundedRows(bound=0.01)], 4, torch.float32, random_axes(4))
    out, _ = there_and_back(coder, rows, np.array([[3]]))
    assert not np.isfinite(out[1]).any()
    assert np.abs(out[[0, 2]] - 1).max() <= 0.02 + 1e-6
