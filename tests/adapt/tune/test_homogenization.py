"""The index counts which rows stay apart; three classes follow from it."""

from __future__ import annotations

import numpy as np
import pytest

from laconic.adapt.tune.curves import CLASS_BOUNDS, homogenization_index, table_class


def rows(*values):
    return np.array(values, dtype=np.float32)


def test_rows_that_become_equal_are_counted_once():
    given = rows([0, 0], [0, 0.01], [1, 1], [1, 0])
    assert homogenization_index(given, 0.001) == 1
    assert homogenization_index(given, 0.05) == 3 / 4


def test_rows_that_were_equal_before_do_not_count():
    assert homogenization_index(rows([0, 0], [0, 0], [1, 1]), 0.1) == 1


def test_the_bound_is_relative_to_the_range():
    given = np.random.default_rng(0).normal(size=(500, 2)).astype(np.float32)
    index = homogenization_index(given, 0.03)
    assert 0 < index < 1
    assert homogenization_index(1024 * given, 0.03) == index


def test_wider_bounds_merge_more():
    given = np.random.default_rng(0).normal(size=(500, 2)).astype(np.float32)
    indices = [homogenization_index(given, bound) for bound in (0.001, 0.01, 0.1, 0.5)]
    assert indices == sorted(indices, reverse=True)


@pytest.mark.parametrize("given", [np.zeros((0, 3), np.float32), rows([0.5, 0.5]), rows([2, 2], [2, 2])])
def test_nothing_merges_where_there_is_one_row_or_none(given):
    assert homogenization_index(given, 0.03) == 1


def test_tables_that_merge_get_the_small_bound():
    assert [table_class(index) for index in (1.0, 0.99, 0.98, 0.5, 0.49, 0.0)] == [
        "large", "large", "medium", "medium", "small", "small",
    ]  # fmt: skip
    assert CLASS_BOUNDS["small"] < CLASS_BOUNDS["medium"] < CLASS_BOUNDS["large"]
