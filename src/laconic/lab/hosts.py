"""Names, addresses and environments of a lab's hosts."""

from __future__ import annotations

import os
from collections.abc import Mapping

INTERFACE = "eth0"
MOST_HOSTS = 250
AGGREGATOR_ADDRESS = "10.0.0.254"
_FIRST_PORT = 29500


def addresses(hosts: int) -> list[str]:
    """Return the address of every host; they exist inside the lab only."""
    return [f"10.0.0.{host + 1}" for host in range(hosts)]


def environments(
    hosts: int,
    *,
    run: int,
    pin_cores: bool,
    aggregation_job: str | None = None,
    own: Mapping[str, str] | None = None,
) -> list[dict[str, str]]:
    """Return the environment of every host: the caller's, then torchrun's, then ``own``.

    Every run has another port, so that no socket of the last run is in the way.
    """
    together = {
        "WORLD_SIZE": str(hosts),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_WORLD_SIZE": str(hosts),
        "MASTER_ADDR": addresses(hosts)[0],
        "MASTER_PORT": str(_FIRST_PORT + run % 1000),
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "TP_SOCKET_IFNAME": INTERFACE,
        "NCCL_SOCKET_IFNAME": INTERFACE,
        "PYTHONUNBUFFERED": "1",
    }
    if aggregation_job is not None:
        together["LACONIC_AGGREGATOR"] = AGGREGATOR_ADDRESS
        together["LACONIC_AGGREGATION_JOB"] = aggregation_job
    if pin_cores:
        together["OMP_NUM_THREADS"] = "1"
    return [
        {**os.environ, **together, "RANK": str(host), "GROUP_RANK": str(host), **(own or {})}
        for host in range(hosts)
    ]


def cores(hosts: int) -> list[int]:
    """Choose a core for every host, in turn, out of those that this process may use."""
    usable = sorted(os.sched_getaffinity(0))
    return [usable[host % len(usable)] for host in range(hosts)]
