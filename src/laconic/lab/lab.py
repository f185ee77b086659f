"""The lab: hosts that a job runs on, one rank each, joined by links of a known bandwidth."""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from laconic.errors import ConfigError, PlanError
from laconic.lab.aggregation import KINDS
from laconic.lab.connection import Connection
from laconic.lab.faults import Faults
from laconic.lab.hosts import MOST_HOSTS, addresses, cores, environments
from laconic.lab.job import Job
from laconic.lab.result import Output, Result, Screen
from laconic.lab.token_bucket import link_limit


class Lab:
    """Hosts in network namespaces, joined by a switch; a context manager.

    ``mbps`` limits every link in each direction, in Mbit/s; None sets no limit. ``aggregator`` puts
    one into the switch, in the kernel (``'xdp'``) or in user space (``'user'``); jobs join it by
    ``InNetwork.from_environment``. ``faults`` makes links lose, double and reorder packets. A lab
    needs root, or a kernel that allows user namespaces; only root can have ``'xdp'`` and faults.
    """

    def __init__(
        self,
        *,
        hosts: int,
        mbps: float | None = None,
        aggregator: str | None = None,
        faults: Faults | None = None,
    ) -> None:
        if isinstance(hosts, bool) or not isinstance(hosts, int) or not 1 <= hosts <= MOST_HOSTS:
            raise ConfigError(f"lab: hosts: expected a number from 1 to {MOST_HOSTS}, got {hosts!r}")
        self.hosts = hosts
        self.limit = link_limit(mbps)
        """Limit of every link in each direction; None where there is none."""
        if aggregator is not None and aggregator not in KINDS:
            raise ConfigError(f"lab: aggregator: expected {' or '.join(KINDS)}, got {aggregator!r}")
        self.aggregator = aggregator
        self.faults = faults
        self._keeper: Connection | None = None
        self._job: Job | None = None
        self._runs = 0

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Build the network; PlanError names what the machine lacks."""
        if self._keeper is not None:
            raise PlanError("lab: expected a closed lab to open, got one that is open; close it first")
        plan = {
            "hosts": self.hosts,
            "mbps": None if self.limit is None else self.limit.mbps,
            "aggregator": self.aggregator,
            "faults": None if self.faults is None else dataclasses.asdict(self.faults),
        }
        self._keeper = Connection(plan)

    def close(self) -> None:
        """End what runs and take the network down; a second call does nothing."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        try:
            if self._job is not None and self._job.running:
                self._job.stop()
        finally:
            keeper.close()

    @property
    def addresses(self) -> list[str]:
        """Address of every host; they exist inside the lab only."""
        return addresses(self.hosts)

    @property
    def privilege(self) -> str:
        """``'root'`` or ``'user namespace'``: what the lab was built with."""
        return self._connected().privilege

    @property
    def keeper_pid(self) -> int:
        """Process that holds the namespaces."""
        return self._connected().pid

    def run(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        pin_cores: bool = False,
        timeout_s: float | None = None,
        stream: bool | TextIO = False,
        grace_s: float = 2.0,
    ) -> Result:
        """Run a command on every host and wait.

        ``timeout_s`` ends it, and CommError is raised; ``start`` has the other arguments.
        """
        job = self.start(command, env=env, pin_cores=pin_cores, stream=stream, grace_s=grace_s)
        try:
            return job.wait(timeout_s)
        finally:
            if job.running:
                job.stop()

    def start(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        pin_cores: bool = False,
        stream: bool | TextIO = False,
        grace_s: float = 2.0,
    ) -> Job:
        """Start a command on every host, in this folder, with the environment of torchrun.

        ``env`` is added to that environment. ``pin_cores`` gives every host one core, in turn, and
        one thread. ``stream`` shows output as it is written, on standard output or on the file
        given. When a host fails, the others have ``grace_s`` to notice by themselves before they
        are ended.
        """
        keeper = self._connected()
        if self._job is not None and self._job.running:
            raise PlanError("lab: expected no job to run, got one that does; wait for it or stop it")
        found = _executable(command, env or {})
        self._runs += 1
        job = secrets.randbits(64)  # every run has its own job: packets of the last one are dropped
        screen = Screen(sys.stdout if stream is True else stream or None, self.hosts)
        settings: dict[str, Any] = {
            "command": found,
            "environments": environments(
                self.hosts,
                run=self._runs,
                pin_cores=pin_cores,
                aggregation_job=None if self.aggregator is None else f"{job:016x}",
                own=env,
            ),
            "aggregation_job": job,
            "folder": os.getcwd(),
            "cores": cores(self.hosts) if pin_cores else None,
        }
        counters = keeper.ask("counters")["counters"]
        with ExitStack() as ours, ExitStack() as theirs:
            outputs = [Output(host, screen) for host in range(self.hosts)]
            events, their_events = os.pipe()
            ours.callback(os.close, events)
            theirs.callback(os.close, their_events)
            for output in outputs:
                ours.callback(output.close)
                theirs.callback(os.close, output.theirs)
            descriptors = [their_events, *(output.theirs for output in outputs)]
            pids = keeper.ask("start", descriptors, **settings)["pids"]
            ours.pop_all()  # the job closes them
        self._job = Job(keeper, pids=pids, outputs=outputs, events=events, counters=counters, grace_s=grace_s)
        return self._job

    def aggregator_counters(self) -> dict[str, int]:
        """Return what became of the packets that the aggregator got since the lab was opened."""
        if self.aggregator is None:
            raise PlanError(
                "lab: expected a lab with an aggregator, got one without; use Lab(aggregator='xdp')"
            )
        counters: dict[str, int] = self._connected().ask("aggregator")["counters"]
        return counters

    def set_mbps(self, mbps: float | None) -> None:
        """Change the bandwidth of all links, between runs or during one; None lifts the limit."""
        limit = link_limit(mbps)
        self._connected().ask("mbps", mbps=mbps)
        self.limit = limit

    def link_down(self, host: int) -> None:
        """Pull a host's cable: packets are lost, connections stall until they time out."""
        self._set_link(host, up=False)

    def link_up(self, host: int) -> None:
        """Put a host's cable back."""
        self._set_link(host, up=True)

    def _set_link(self, host: int, *, up: bool) -> None:
        if not 0 <= host < self.hosts:
            raise ConfigError(f"lab: host: expected 0 to {self.hosts - 1}, got {host!r}")
        self._connected().ask("link", host=host, up=up)

    def _connected(self) -> Connection:
        if self._keeper is None:
            raise PlanError("lab: expected an open lab, got a closed one; use 'with Lab(...) as lab:'")
        return self._keeper


def _executable(command: Sequence[str | Path], env: Mapping[str, str]) -> list[str]:
    """Return the command as text; ConfigError if there is no such program."""
    words = [str(word) for word in command]
    if isinstance(command, str) or not words:
        raise ConfigError(f"lab: command: expected a list of a program and its arguments, got {command!r}")
    if shutil.which(words[0], path=env.get("PATH")) is None:
        raise ConfigError(f"lab: command: no program {words[0]!r} found; give its path or install it")
    return words
