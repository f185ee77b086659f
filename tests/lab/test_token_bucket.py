from __future__ import annotations

import re

import pytest

from laconic.errors import ConfigError
from laconic.lab import Lab
from laconic.lab.token_bucket import TokenBucket


@pytest.mark.parametrize("mbps", [0, -1, 0.001, 33_000, float("nan")])
def test_a_bandwidth_that_the_kernel_cannot_keep_is_refused(mbps):
    message = f"lab: mbps: expected 0.064 to 32000 Mbit/s, got {mbps!r}; leave it out for no limit"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        Lab(hosts=2, mbps=mbps)


@pytest.mark.parametrize("mbps", [0.064, 50, 200, 1_000, 10_000, 32_000])
def test_a_piece_fits_into_the_bucket_with_all_its_headers(mbps):
    bucket = TokenBucket(mbps)
    packets = -(-bucket.piece_bytes // 1448)
    assert bucket.piece_bytes + 66 * packets <= bucket.burst_bytes <= bucket.queue_bytes


@pytest.mark.parametrize("mbps", [100, 1_000, 10_000])
def test_what_leaves_at_once_after_a_pause_is_a_millisecond(mbps):
    assert TokenBucket(mbps).burst_bytes == mbps * 1000 / 8


@pytest.mark.parametrize("hosts", [0, -1, 251, 2.0, True, "2"])
def test_a_number_of_hosts_that_cannot_be_is_refused(hosts):
    with pytest.raises(ConfigError, match=r"^lab: hosts: expected a number from 1 to 250, got "):
        Lab(hosts=hosts)
