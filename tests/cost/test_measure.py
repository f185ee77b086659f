"""Costs of candidates on given rows: bytes are exact, times positive, no rows cost nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laconic.codecs import BoundedRows, Cast
from laconic.cost.link import CodecCost
from laconic.cost.measure import codec_costs
from laconic.errors import ConfigError

ROWS = np.random.default_rng(0).normal(0, 0.1, (300, 16)).astype(np.float32)
BOUNDED = BoundedRows(0.01, rounding="unbiased", seed=3)
CANDIDATES = (Cast("fp32"), Cast(), BOUNDED)


def test_bytes_are_those_that_all_destinations_get():
    [costs] = codec_costs([ROWS], [CANDIDATES], [3])
    bounded = len(BOUNDED.encode(torch.from_numpy(ROWS)))
    assert [cost.bytes_sent for cost in costs] == [3 * 4 * ROWS.size, 3 * 2 * ROWS.size, 3 * bounded]


def test_a_codec_takes_some_time_on_any_rows():
    for cost in codec_costs([ROWS[:1]], [CANDIDATES], [1])[0]:
        assert min(cost.encode_s, cost.decode_s) >= 2e-6 / torch.get_num_threads()


def test_no_rows_or_no_destinations_cost_nothing():
    costs = codec_costs([ROWS[:0], ROWS], [CANDIDATES] * 2, [3, 0])
    assert costs == ((CodecCost(0, 0, 0),) * 3,) * 2


def test_what_is_not_offered_has_no_cost():
    [[exact, cast]] = codec_costs([ROWS], [(Cast("fp32"), None)], np.array([1]))
    assert exact.bytes_sent == ROWS.nbytes
    assert cast is None


def test_tables_must_be_as_many_everywhere():
    message = r"^codec probe: expected rows, candidates and destinations of as many tables, got 1, 2 and 1$"
    with pytest.raises(ConfigError, match=message):
        codec_costs([ROWS], [CANDIDATES] * 2, [1])
