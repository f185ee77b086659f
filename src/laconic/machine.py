"""Facts about this machine, for results that must name it."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def cpu_model() -> str:
    """Name of the processor, as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def has_vnni() -> bool:
    """Whether the processor multiplies 8-bit integers without saturating sums in between."""
    try:
        return "vnni" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory_bytes() -> int | None:
    """Bytes that this process can still use, within its control group's limit; None if unknown."""
    found = []
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(1024 * int(lines["MemAvailable"].split()[0]))
    except (OSError, KeyError, ValueError):
        pass
    group = Path("/sys/fs/cgroup")
    try:
        most, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
        cache = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        if most != "max":
            found.append(int(most) - int(used) + int(cache["inactive_file"]))
    except (OSError, KeyError, ValueError):
        pass
    return min(found, default=None)
