"""The aggregator in the kernel: eBPF programs on the ports of a switch or on a machine's card.

Packets are added where they arrive and never reach user space; this process only holds the programs
and tells them of jobs. It needs root outside of any user namespace, libbpf, and clang or zig.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from laconic.bpf import Program, tools_lacking
from laconic.errors import PlanError
from laconic.kernels.cpu import _native
from laconic.reduce.network.aggregator import MOST_JOBS, Counters
from laconic.reduce.network.job import Address, check_job, check_workers, format_job

__all__ = ["Need", "XdpAggregator", "check", "reason_against"]


_SOURCE = Path(__file__).with_name("switch.bpf.c")
_JOB = struct.Struct("=II")
_ENTRY_HEAD = struct.Struct("=IIIIII")
_ENTRY_BYTES = _ENTRY_HEAD.size + 8 * _native.PACKET_VALUES


class XdpAggregator:
    """Attached to interfaces, which share one pool; ``address`` is where workers send to."""

    def __init__(self, address: str, interfaces: Sequence[int], *, mode: str | None = None) -> None:
        self.address = Address.parse(address)
        self._numbers: dict[int, int] = {}
        self._program = _load(self.address)
        try:
            for interface in interfaces:
                self._program.attach_tc("spread", interface)  # first: XDP hands its answers to it
                self._program.attach_xdp("aggregate", interface, mode)
        except BaseException:
            self._program.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def register(self, job: int, workers: int) -> None:
        """Let a job begin, with a pool as if the blocks before its first were complete."""
        check_job(job)
        check_workers(workers)
        free = sorted(set(range(MOST_JOBS)) - set(self._numbers.values()))
        if job in self._numbers or not free:
            raise PlanError(
                f"aggregator: job {format_job(job)}: expected a new name and at most {MOST_JOBS} jobs at a time,"
                " got a known one or one too many; release a job that has ended"
            )
        number, pool = free[0], _native.PACKET_POOL
        everyone = (1 << workers) - 1
        for entry in range(pool):
            head = _ENTRY_HEAD.pack(0, (entry - pool) % (1 << 32), 0, 0, everyone, 0)
            self._program.update(
                "pool", struct.pack("=I", number * pool + entry), head.ljust(_ENTRY_BYTES, b"\0")
            )
        self._program.update("jobs", struct.pack("=Q", job), _JOB.pack(number, workers))
        self._numbers[job] = number

    def release(self, job: int) -> None:
        """Forget a job."""
        if self._numbers.pop(job, None) is not None:
            self._program.delete("jobs", struct.pack("=Q", job))

    def counters(self) -> Counters:
        """Say what became of the packets so far."""
        read = [self._program.read("counters", struct.pack("=I", which), 8) for which in range(8)]
        return Counters.of([struct.unpack("=Q", value)[0] for value in read])

    def close(self) -> None:
        """Detach from all interfaces."""
        self._program.close()


def _load(address: Address) -> Program:
    definitions = {
        "ADDRESS": int.from_bytes(socket.inet_aton(address.host), sys.byteorder),
        "PORT": address.port,
        "JOBS": MOST_JOBS,
    }
    return Program(_SOURCE, definitions)


def reason_against() -> str | None:
    """Say why this machine cannot aggregate in the kernel; None where it can."""
    try:
        _load(Address("127.0.0.1", 1)).close()
    except PlanError as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True)
class Need:
    """One way to aggregate, and what stands against it."""

    name: str
    against: str | None


def check() -> list[Need]:
    """Try both ways; the one in the kernel by loading the program."""
    tools = tools_lacking()
    found = [Need("user space", None), Need("compiler and libbpf", tools)]
    return [*found, Need("XDP", "a compiler and libbpf are needed first" if tools else reason_against())]
