"""Clusters from TOML."""

from __future__ import annotations

import numpy as np
import pytest

from laconic.config import parse
from laconic.cost.frequencies import Frequencies
from laconic.cost.timeline import all_reduce_s
from laconic.cost.topology import Cluster, read_cluster
from laconic.errors import ConfigError, PlanError
from tests.cases import each
from tests.oracle.part import Holding, Part
from tests.oracle.transfer import slow_memory_s, touched_rows_N, transfer_s

MIXED = """
links = [{between = ["server", "phone"], mbps = 10, latency_us = 5000}]
[[devices]]
name = "server"
count = 2
memory_gb = 64
mbps = 8000
samples_per_s = 1000
tiers = [{name = "disk", memory_gb = 900, mbps = 800}]
[[devices]]
name = "phone"
count = 3
memory_gb = 1
egress_mbps = 16
ingress_mbps = 80
step_ms = 7
"""


def test_equal_devices_take_three_lines(tmp_path):
    (tmp_path / "cluster.toml").write_text("devices.count = 3\ndevices.memory_gb = 16\ndevices.mbps = 1000\n")
    cluster = read_cluster(tmp_path / "cluster.toml")
    assert cluster == Cluster.alike(3, memory_gb=16, mbps=1000)
    assert cluster.memory_N.tolist() == [16e9] * 3
    assert cluster.link_NN.tolist() == [[125e6] * 3] * 3


def test_groups_differ_in_all_respects():
    cluster = parse(MIXED, Cluster)
    assert cluster.ranks == 5
    assert (cluster.egress_N * 8 / 1e6).tolist() == [8000, 8000, 16, 16, 16]
    assert (cluster.ingress_N * 8 / 1e6).tolist() == [8000, 8000, 80, 80, 80]
    assert (cluster.link_NN * 8 / 1e6)[[0, 0, 2, 2], [1, 2, 0, 3]].tolist() == [8000, 10, 10, 16]
    assert cluster.latency_NN[0, 2] == pytest.approx(0.0051)
    assert cluster.compute_N([500, 250, 1, 1, 1]).tolist() == [0.5, 0.25, 0.007, 0.007, 0.007]


@each(
    ("text", "message"),
    [
        (
            "devices.count = 0\ndevices.memory_gb = 1\ndevices.mbps = 1",
            "devices.0.count: expected a value >= 1, got 0",
        ),
        ("devices.count = 1\ndevices.memory_gb = 1", "expected mbps or egress_mbps, got neither"),
        (
            "devices.count = 1\ndevices.memory_gb = 1\ndevices.mbps = 1\ndevices.samples_per_s = 1\ndevices.step_ms = 1",
            "got both",
        ),
        (MIXED.replace('"phone"]', '"fone"]'), r"no such group 'fone' \(known: server, phone\)"),
        (MIXED.replace('name = "phone"', 'name = "server"'), "different names, got server, server"),
        ("devices = []", "expected at least 1 of them, got 0"),
    ],
)
def test_what_cannot_be_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse(text, Cluster)


def test_the_narrowest_place_decides():
    cluster = parse(MIXED, Cluster)
    links = np.zeros((5, 5))
    assert transfer_s(cluster, links) == 0
    links[0, 0] = 1e12  # to itself
    assert transfer_s(cluster, links) == 0
    links[0, 1] = 1e9
    assert transfer_s(cluster, links) == pytest.approx(1 + 100e-6)
    links[2, 3] = links[2, 4] = 4e6  # a phone sends 8 MB at 2 MB/s
    assert transfer_s(cluster, links) == pytest.approx(4 + 100e-6)
    links[0, 2] = 2.5e7  # 25 MB at 10 Mbit/s
    assert transfer_s(cluster, links) == pytest.approx(20 + 5100e-6)
    with pytest.raises(PlanError, match="between 5 devices, got a matrix of"):
        transfer_s(cluster, np.zeros((2, 2)))


def test_a_ring_is_as_fast_as_its_slowest_link():
    assert all_reduce_s(Cluster.alike(4, memory_gb=1, mbps=8, latency_us=0), 1e6) == pytest.approx(1.5)
    assert all_reduce_s(Cluster.alike(1, memory_gb=1, mbps=8), 1e6) == 0


def test_rows_in_slow_memory_are_read_once_for_all():
    cluster = parse(MIXED, Cluster)
    part = Part(table="t", frequencies=Frequencies.uniform(100), holding=Holding.whole(5, 1), dim=25)
    assert touched_rows_N(part, 10_000).tolist() == pytest.approx([0, 100, 0, 0, 0])
    assert slow_memory_s(cluster, [part], 10_000, "disk") == pytest.approx(2 * 100 * 100 / 100e6)
    assert slow_memory_s(cluster, [], 10_000, "disk") == 0
    on_phone = Part(table="t", frequencies=Frequencies.uniform(100), holding=Holding.whole(5, 4), dim=25)
    with pytest.raises(PlanError, match="tier 'disk': a device that holds rows in it has none"):
        slow_memory_s(cluster, [on_phone], 10_000, "disk")
