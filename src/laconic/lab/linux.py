"""System calls that Python 3.11 does not offer: namespaces, mounts, and who dies with whom."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CAP_NET_ADMIN = 12
_CAP_SYS_ADMIN = 21


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _call("unshare", ctypes.c_int(flags))


def enter(namespace: int) -> None:
    """Move this thread into the network namespace of an open descriptor."""
    _call("setns", ctypes.c_int(namespace), ctypes.c_int(CLONE_NEWNET))


def mount(source: str, target: str, kind: str, flags: int) -> None:
    """Mount a file system, bind a file or change how mounts spread."""
    _call(
        "mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), ctypes.c_void_p(None)
    )


def set_hostname(name: str) -> None:
    """Name this host, in the UTS namespace of this process."""
    _call("sethostname", name.encode(), ctypes.c_size_t(len(name)))


def die_with_parent(signal_number: int) -> None:
    """Ask for a signal when the thread that forked this process ends."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    _call("prctl", ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero)


def may_administer_networks() -> bool:
    """Whether this process can make network namespaces without a user namespace."""
    status = Path("/proc/self/status").read_text()
    effective = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(effective >> _CAP_NET_ADMIN & effective >> _CAP_SYS_ADMIN & 1)


def children() -> list[int]:
    """Find processes whose parent is this one, adopted orphans included."""
    own = os.getpid()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # ended while we looked
            continue
        if int(stat.rpartition(")")[2].split()[1]) == own:
            found.append(int(entry.name))
    return found
