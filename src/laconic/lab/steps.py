"""Steps of building a lab, in order, and the remedy where one fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, ENOSPC, EPERM
from pathlib import Path

from laconic.errors import PlanError

STEPS = (
    "user namespace",
    "mount namespace",
    "network namespaces",
    "bridge",
    "veth",
    "addresses",
    "tbf",
)
"""Steps in the order in which the keeper takes them; root's capabilities skip the first."""

_RESTRICTED = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_MODULES = {"bridge": "bridge", "veth": "veth", "tbf": "sch_tbf"}


class StepError(PlanError):
    """A step that the kernel refused."""

    def __init__(self, step: str, code: int, reason: str) -> None:
        super().__init__(
            f"lab: {step}: expected the kernel to allow it, got {reason!r}; {remedy(step, code)}"
        )
        self.step = step
        self.code = code
        self.reason = reason


@contextmanager
def step(name: str) -> Iterator[None]:
    """Turn a refusal of the kernel into an error that says which step it was."""
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415  (only the keeper needs it)

    try:
        yield
    except OSError as error:
        raise StepError(name, error.errno or 0, error.strerror or str(error)) from error
    except NetlinkError as error:
        raise StepError(name, error.code, str(error.args[-1])) from error


def remedy(step: str, code: int) -> str:
    """Say what a person can do about a step that failed with this error number."""
    if code in (EPERM, EACCES) or step in ("user namespace", "mount namespace"):
        if _RESTRICTED.exists() and _RESTRICTED.read_text().strip() == "1":
            return "run as root, or 'sysctl kernel.apparmor_restrict_unprivileged_userns=0'"
        if code == ENOSPC:
            return "run as root, or raise it with 'sysctl user.max_user_namespaces=10000'"
        return (
            "run as root, allow user namespaces ('sysctl kernel.unprivileged_userns_clone=1'), or in a"
            " container give it '--cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined'"
        )
    if step in _MODULES:
        return f"load it with 'modprobe {_MODULES[step]}'"
    return "use a kernel with network namespaces (CONFIG_NET_NS)"
