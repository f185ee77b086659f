"""Ids of the public sets. That PyPI has their packages is for whoever runs the command to see."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow")

from benchmarks.public_sets import _ids  # noqa: E402


def test_ids_are_ranked_by_frequency_and_missing_values_are_one_value():
    raw = pa.table({"x": ["b", "a", "a", None, "a", "b"]})
    assert _ids(raw, ["x"]).to_pylist() == [1, 0, 0, 2, 0, 1]


def test_a_cross_has_an_id_for_each_pair_that_occurs():
    raw = pa.table({"x": [1, 1, 2, 2, 1], "y": ["a", "b", "a", "a", "b"]})
    ids = _ids(raw, ["x", "y"]).to_pylist()
    assert ids[1] == ids[4]
    assert ids[2] == ids[3]
    assert sorted(set(ids)) == [0, 1, 2]
    assert ids[0] == 2  # the only one that occurs once
