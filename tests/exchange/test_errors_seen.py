"""Errors and cosines of updates, table by table, added up over ranks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows
from laconic.exchange import Table
from laconic.exchange.errors_seen import UpdateError, cosine_T, relative_error_T
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.lookups import Lookups
from tests.distributed.made import made_local

TABLE_R = np.array([0, 2, 0, 2, 2])


def rows(seed):
    return np.random.default_rng(seed).normal(size=(5, 3)).astype(np.float32)


def test_errors_and_cosines_are_those_of_each_tables_rows():
    exact, applied = rows(0), rows(1)
    error = UpdateError(4)
    error.add_rows(TABLE_R, exact, applied)
    for t in (0, 2):
        one, other = (values[t == TABLE_R].astype(np.float64).ravel() for values in (exact, applied))
        assert relative_error_T(error.sums_4T)[t] == pytest.approx(
            ((other - one) ** 2).sum() / (one**2).sum()
        )
        norms = np.linalg.norm(one) * np.linalg.norm(other)
        assert cosine_T(error.sums_4T)[t] == pytest.approx((one * other).sum() / norms)


def test_tables_that_nobody_looked_up_have_no_error():
    error = UpdateError(4)
    error.add_rows(TABLE_R, rows(0), rows(1))
    assert relative_error_T(error.sums_4T)[[1, 3]].tolist() == [0, 0]
    assert cosine_T(error.sums_4T)[[1, 3]].tolist() == [1, 1]


def test_what_is_applied_as_it_is_has_no_error_and_what_is_not_applied_all_of_it():
    same, lost = UpdateError(3), UpdateError(3)
    same.add_rows(TABLE_R, rows(0), rows(0))
    lost.add_rows(TABLE_R, rows(0), np.zeros_like(rows(0)))
    assert relative_error_T(same.sums_4T).tolist() == [0, 0, 0]
    assert cosine_T(same.sums_4T) == pytest.approx(1, rel=1e-15)
    assert relative_error_T(lost.sums_4T).tolist() == [1, 0, 1]
    assert cosine_T(lost.sums_4T).tolist() == [0, 1, 0]


def test_sums_of_ranks_and_steps_add_up():
    whole, first, second = UpdateError(3), UpdateError(3), UpdateError(3)
    for seed, part in ((0, first), (2, second), (4, second)):
        whole.add_rows(TABLE_R, rows(seed), rows(seed + 1))
        part.add_rows(TABLE_R, rows(seed), rows(seed + 1))
    assert first.sums_4T + second.sums_4T == pytest.approx(whole.sums_4T, rel=1e-14)


def test_no_rows_are_no_error():
    error = UpdateError(2)
    error.add_rows(np.empty(0, np.int64), np.empty((0, 3), np.float32), np.empty((0, 3), np.float32))
    assert not error.sums_4T.any()


def watched(bound):
    """Errors of gradients that three ranks send."""
    backward = BoundedRows(bound, relative_to="rms", rounding="unbiased")
    codecs = (TableCodecs(None, backward), TableCodecs(), TableCodecs(None, backward))
    tables = [Table(name=name, rows=50, sharding="row") for name in "abc"]
    embeddings = made_local(tables, 8, 3, policy=FixedPolicy(ExchangePlan(codecs)))
    ids = torch.randint(0, 50, (3, 90), generator=torch.Generator().manual_seed(0))
    lookups = Lookups.single(ids)
    error = UpdateError(3)
    embeddings.engines[0].observe(error)
    target = torch.randn(90, 3, 8, generator=torch.Generator().manual_seed(1))
    (embeddings(lookups) * target).sum().backward()
    embeddings.engines[0].observe(None)  # waits for the update
    seen = error.sums_4T.copy()
    embeddings(lookups).sum().backward()
    embeddings.optimizer.step()
    assert (error.sums_4T == seen).all()  # nobody watches any more
    return relative_error_T(seen), cosine_T(seen)


def test_wide_bounds_err_more_and_exact_tables_not_at_all():
    (narrow, straight), (wide, crooked) = watched(0.1), watched(2.0)
    assert narrow[1] == wide[1] == 0
    assert straight[1] == pytest.approx(1, rel=1e-15)
    for t in (0, 2):
        # no value is off by more than the bound times the root mean square
        assert 0 < narrow[t] <= 0.1**2
        assert narrow[t] < wide[t]
        assert crooked[t] < straight[t] < 1
