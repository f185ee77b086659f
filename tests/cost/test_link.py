"""Links and costs that cannot be."""

from __future__ import annotations

import math

import pytest

from laconic.cost.link import CodecCost, Link
from laconic.errors import ConfigError
from tests.cases import each


@each(("latency_s", "bytes_per_s"), [(-1, 1), (0, 0), (math.nan, 1), (0, math.inf)])
def test_a_link_that_cannot_be_is_refused(latency_s, bytes_per_s):
    with pytest.raises(
        ConfigError, match=r"^link: expected a latency >= 0 and a bandwidth > 0, both finite, got"
    ):
        Link(latency_s, bytes_per_s)


@each("numbers", [(-1, 0, 0), (0, math.nan, 0), (0, 0, math.inf)])
def test_a_cost_that_cannot_be_is_refused(numbers):
    with pytest.raises(
        ConfigError, match=r"^codec cost: expected finite numbers >= 0, got .* measure it again$"
    ):
        CodecCost(*numbers)
