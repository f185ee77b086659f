"""Rows that were noted come back as they were, however often they were updated."""

from __future__ import annotations

import numpy as np
import pytest

from laconic.exchange.tables.shards import Journal


def tables(state=True):
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(20, 3)).astype(np.float32)
    return weight, rng.random(20).astype(np.float32) if state else None


def update(journal, weight, state, rows):
    journal.note(np.array(rows, np.int64))
    weight[rows] *= 1.1
    if state is not None:
        state[rows] += 1


@pytest.mark.parametrize("has_state", [True, False])
def test_undo_brings_rows_back_to_the_first_note_of_each(has_state):
    weight, state = tables(has_state)
    before = weight.copy(), None if state is None else state.copy()
    journal = Journal(weight, state)
    for rows in ([1, 5, 5, 2], [5, 1], [19, 0], [5]):
        update(journal, weight, state, rows)
    assert (weight[[0, 1, 2, 5, 19]] != before[0][[0, 1, 2, 5, 19]]).all()
    journal.undo()
    assert weight.tobytes() == before[0].tobytes()
    assert state is None or state.tobytes() == before[1].tobytes()


def test_a_journal_goes_on_after_undo():
    weight, state = tables()
    before = weight.copy()
    journal = Journal(weight, state)
    for rows in ([3, 4], [4, 9], [3]):
        update(journal, weight, state, rows)
        journal.undo()
        assert weight.tobytes() == before.tobytes()
    journal.undo()
    assert weight.tobytes() == before.tobytes()


def test_only_noted_rows_are_touched():
    weight, state = tables()
    journal = Journal(weight, state)
    update(journal, weight, state, [2])
    weight[7] = 0
    journal.undo()
    assert weight[7].tolist() == [0, 0, 0]


def test_a_note_of_no_rows_is_nothing():
    weight, state = tables()
    before = weight.copy()
    journal = Journal(weight, state)
    update(journal, weight, state, [])
    journal.undo()
    assert weight.tobytes() == before.tobytes()


def test_values_that_are_no_numbers_come_back_too():
    weight, state = tables()
    weight[0] = [np.nan, np.inf, -0.0]
    before = weight.copy()
    journal = Journal(weight, state)
    update(journal, weight, state, [0])
    journal.undo()
    assert weight.tobytes() == before.tobytes()
