from __future__ import annotations

import re

import pytest

from laconic.errors import ConfigError
from laconic.lab import Lab, Rate


@pytest.mark.parametrize(
    ("text", "bits_per_s"),
    [("200mbit", 200e6), ("1gbit", 1e9), ("1.5gbit", 1.5e9), ("800kbit", 800e3), (" 1 Gbit", 1e9)],
)
def test_a_rate_is_a_number_and_a_unit(text, bits_per_s):
    assert Rate.parse(text).bits_per_s == bits_per_s


@pytest.mark.parametrize("text", ["200mbit", "1.5gbit", "800kbit", "123.456789mbit"])
def test_a_rate_prints_as_it_is_written(text):
    assert str(Rate.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "suggested"),
    [
        ("200", "200mbit"),
        ("10 MB/s", "10mbit"),
        ("fast", "200mbit"),
        ("", "200mbit"),
        ("-1mbit", "200mbit"),
        ("1e3mbit", "1mbit"),
    ],
)
def test_a_rate_without_a_known_unit_is_refused_with_what_to_write(text, suggested):
    message = f"lab: rate: expected a number and kbit, mbit or gbit, got {text!r}; write {suggested!r}"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        Rate.parse(text)


@pytest.mark.parametrize("text", ["0mbit", "1kbit", "33gbit"])
def test_a_rate_that_the_kernel_cannot_keep_is_refused(text):
    message = f"lab: rate: expected 64kbit to 32gbit, got {text!r}; leave the rate out for no limit"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        Rate.parse(text)


@pytest.mark.parametrize("text", ["64kbit", "50mbit", "200mbit", "1gbit", "10gbit", "32gbit"])
def test_a_piece_fits_into_the_bucket_with_all_its_headers(text):
    rate = Rate.parse(text)
    packets = -(-rate.piece_bytes // 1448)
    assert rate.piece_bytes + 66 * packets <= rate.burst_bytes <= rate.queue_bytes


@pytest.mark.parametrize("text", ["100mbit", "1gbit", "10gbit"])
def test_what_leaves_at_once_after_a_pause_is_a_millisecond(text):
    rate = Rate.parse(text)
    assert rate.burst_bytes == int(rate.bits_per_s / 8 / 1000)


@pytest.mark.parametrize("hosts", [0, -1, 251, 2.0, True, "2"])
def test_a_number_of_hosts_that_cannot_be_is_refused(hosts):
    with pytest.raises(ConfigError, match=r"^lab: hosts: expected a number from 1 to 250, got "):
        Lab(hosts=hosts)
