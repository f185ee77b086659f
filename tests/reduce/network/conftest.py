"""An aggregator on the loopback interface, and workers in threads; what this machine can do."""

from __future__ import annotations

import itertools
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from laconic.reduce.network import InNetwork, UserAggregator
from laconic.reduce.network.xdp import reason_against

JOB = 0x0123456789ABCDEF
PATIENCE_S = 60


def free_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture(scope="module")
def kernel(machine):
    if (reason := reason_against()) is not None:
        pytest.skip(f"no XDP on this machine: {reason.splitlines()[0]}")


@pytest.fixture(autouse=True)
def quick_close(monkeypatch):
    """Let aggregators look more often whether they shall close: most of these tests are shorter than one look."""
    monkeypatch.setattr("laconic.reduce.network.server._SLICE_S", 0.005)


@pytest.fixture
def aggregator():
    with UserAggregator(free_address()) as running:
        yield running


def together(addresses, arrays, *, operation="add", job=JOB, rounds=1, timeout_s=20.0):
    """Let one worker per array do the same operation; each tells what it got or what was raised."""

    def work(worker):
        with InNetwork(
            str(addresses[worker]), job=job, worker=worker, workers=len(arrays), timeout_s=timeout_s
        ) as network:
            try:
                for _ in itertools.repeat(None, rounds):
                    getattr(network, operation)(arrays[worker])
            except Exception as error:
                return error
            return network

    with ThreadPoolExecutor(len(arrays)) as pool:
        return list(pool.map(work, range(len(arrays))))
