"""What hosts see of each other, of the machine and of their links."""

from __future__ import annotations

import json
import os
import socket

import pytest

from laconic.errors import ConfigError
from laconic.lab import Lab
from tests import warm
from tests.lab.conftest import PATIENCE_S, python

MEET = """
import os, socket, sys
RANK = int(os.environ["RANK"])
SIZE = int(os.environ.get("SIZE", "0"))
def meet(port=6000):
    if RANK == 0:
        with socket.create_server(("10.0.0.1", port)) as server:
            return server.accept()[0]
    while True:
        try:
            return socket.create_connection(("host0", port))
        except ConnectionRefusedError:  # host 0 does not listen yet
            pass
def take(connection):
    left = SIZE
    while left:
        left -= len(connection.recv(min(left, 1 << 16)))
"""
TRANSFER = MEET + "connection = meet()\ntake(connection) if RANK == 0 else connection.sendall(bytes(SIZE))"
EXCHANGE = """
connection = meet()
own, peer = (name[0].removeprefix("::ffff:") for name in (connection.getsockname(), connection.getpeername()))
print(socket.gethostname(), own, peer)
"""


def test_hosts_reach_each_other_under_their_names(pair):
    result = pair.run(python(MEET + EXCHANGE), timeout_s=PATIENCE_S).check()
    assert result.output == ["host0 10.0.0.1 10.0.0.2\n", "host1 10.0.0.2 10.0.0.1\n"]
    assert pair.addresses == ["10.0.0.1", "10.0.0.2"]


def test_hosts_reach_nothing_outside(pair):
    script = """
import errno, os, socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=5)
except OSError as error:
    print(errno.errorcode[error.errno])
try:
    socket.create_connection(("127.0.0.1", int(os.environ["OUTSIDE"])), timeout=5)
except ConnectionRefusedError:
    print("own loopback")
print(sorted(name for _, name in socket.if_nameindex()))
"""
    with socket.create_server(("127.0.0.1", 0)) as outside:
        env = {"OUTSIDE": str(outside.getsockname()[1])}
        result = pair.run(python(script), env=env, timeout_s=PATIENCE_S).check()
    assert result.output == ["ENETUNREACH\nown loopback\n['eth0', 'lo']\n"] * 2


def test_nothing_of_the_lab_appears_outside(pair):
    assert not {name for _, name in socket.if_nameindex()} & {"switch", "port0", "port1"}
    before = os.stat("/proc/self/ns/net").st_ino
    pair.run(["true"]).check()
    assert os.stat("/proc/self/ns/net").st_ino == before


def test_the_environment_is_that_of_torchrun_with_one_rank_per_host(pair):
    script = "import json, os; print(json.dumps(dict(os.environ)))"
    result = pair.run(python(script), env={"OWN": "1", "TP_SOCKET_IFNAME": "lo"}, pin_cores=True).check()
    for host, text in enumerate(result.output):
        found = json.loads(text)
        expected = {
            "RANK": str(host),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": "10.0.0.1",
            "GLOO_SOCKET_IFNAME": "eth0",
            "TP_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "OWN": "1",
            "PATH": os.environ["PATH"],
        }
        assert {name: found[name] for name in expected} == expected
        assert int(found["MASTER_PORT"]) > 1024


def test_a_pinned_host_has_one_core_and_hosts_take_turns(pair):
    cores = sorted(os.sched_getaffinity(0))
    result = pair.run(python("import os; print(*os.sched_getaffinity(0))"), pin_cores=True).check()
    assert [int(text) for text in result.output] == [cores[host % len(cores)] for host in range(2)]


@pytest.mark.parametrize("mbps", [None, 400])
def test_counters_show_the_bytes_of_this_run_alone(pair, mbps):
    pair.set_mbps(mbps)
    size = 4_000_000
    for _ in range(2):
        result = pair.run(python(TRANSFER), env={"SIZE": str(size)}, timeout_s=PATIENCE_S).check()
        # Headers are at most 66 bytes for every 1448 of payload. A busy machine sends a few packets
        # again, but far less than the bytes of a second run.
        most = 1.3 * size * 1514 / 1448 + 20_000
        assert size <= result.hosts[1].bytes_sent <= most
        assert size <= result.hosts[0].bytes_received <= most
        assert result.hosts[0].bytes_sent < size / 10


def test_no_transfer_is_faster_than_the_bandwidth(pair):
    pair.set_mbps(20)
    size = 500_000
    result = pair.run(python(TRANSFER), env={"SIZE": str(size)}, timeout_s=PATIENCE_S).check()
    assert pair.limit is not None
    assert result.seconds >= (size - pair.limit.burst_bytes) * 8 / 20e6


def test_the_bandwidth_changes_while_a_job_runs(pair):
    pair.set_mbps(0.064)  # ten minutes for the whole
    job = pair.start(python(TRANSFER), env={"SIZE": "5000000"})
    pair.set_mbps(1000)
    job.wait(PATIENCE_S).check()


def test_a_failed_link_stalls_a_transfer_and_comes_back(machine):
    script = """
connection = meet()
connection.settimeout(1)
print("connected")
try:
    while RANK == 1:
        connection.sendall(bytes(1 << 16))
except TimeoutError:
    sys.exit(3)
connection.settimeout(None)
while connection.recv(1 << 16):
    pass
"""
    with Lab(hosts=2) as lab:
        job = lab.start(python(MEET + script), grace_s=0)
        job.wait_for("connected", host=1, timeout_s=PATIENCE_S)
        lab.link_down(1)
        result = job.wait(PATIENCE_S)
        assert result.first_failure == 1
        assert result.exit_codes[1] == 3
        lab.link_up(1)
        lab.run(python(TRANSFER), env={"SIZE": "100000"}, timeout_s=PATIENCE_S).check()


def test_a_host_that_is_not_there_has_no_link(pair):
    with pytest.raises(ConfigError, match=r"^lab: host: expected 0 to 1, got 2$"):
        pair.link_down(2)


def test_torch_sums_over_three_hosts(machine):
    script = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((100_000,), float(dist.get_rank() + 1))
dist.all_reduce(x)
print(x.unique().tolist())
dist.destroy_process_group()
"""
    with Lab(hosts=3, mbps=1000) as lab:
        result = lab.run([*warm.python(), "-c", script], pin_cores=True, timeout_s=120).check()
    assert result.output == ["[6.0]\n"] * 3
    assert all(host.bytes_sent > 400_000 for host in result.hosts)
