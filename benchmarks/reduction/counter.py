"""Bytes that left this host, by the counter of its network interface.

``/proc/net/dev`` is that of the process's network namespace; ``/sys/class/net`` would be that of whoever mounted it. On
loopback all ranks, and whoever else uses it, share one counter.
"""

from __future__ import annotations

import os
from pathlib import Path

from laconic.errors import ConfigError

__all__ = ["bytes_sent", "shared_counter"]

_SENT = 8  # column of bytes sent, after eight of what was received


def bytes_sent() -> int:
    """Read the counter of the interface that gloo uses."""
    name = _interface()
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        found, colon, figures = line.partition(":")
        if colon and found.strip() == name:
            return int(figures.split()[_SENT])
    raise ConfigError(f"GLOO_SOCKET_IFNAME: no such network interface {name!r}")


def shared_counter() -> bool:
    """Whether all ranks' bytes are counted together."""
    return _interface() == "lo"


def _interface() -> str:
    return os.environ.get("GLOO_SOCKET_IFNAME", "lo")
