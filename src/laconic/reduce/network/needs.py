"""Whether this machine can aggregate, and in the kernel, and if not, why."""

from __future__ import annotations

from dataclasses import dataclass

from laconic.bpf import tools_lacking
from laconic.reduce.network.xdp import reason_against

__all__ = ["Need", "check"]


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
