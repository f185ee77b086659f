"""What a run gave: exit codes, bytes over the wire, output, time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from laconic.errors import CommError

_LAST_LINES = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class HostResult:
    """What one host did."""

    host: int
    exit_code: int
    """As ``subprocess`` counts: negative for the signal that ended it."""
    seconds: float
    """From the start of the run to the end of this host's process."""
    bytes_sent: int
    """Into the link during the run, by the interface's counter: payload, headers, repeated packets."""
    bytes_received: int
    output: str
    """Standard output and error, in the order of writing."""
    ended_by_lab: bool
    """Whether the lab told it to end, after another host failed or on request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What a run gave."""

    hosts: tuple[HostResult, ...]
    seconds: float
    first_failure: int | None
    """Host that failed first, by itself; None where none did."""

    @property
    def exit_codes(self) -> list[int]:
        """Exit code of every host."""
        return [host.exit_code for host in self.hosts]

    @property
    def output(self) -> list[str]:
        """What every host wrote."""
        return [host.output for host in self.hosts]

    @property
    def ok(self) -> bool:
        """Whether every host ended by itself with exit code 0."""
        return not any(self.exit_codes)

    @property
    def exit_code(self) -> int:
        """Exit code of the first host that failed, as a shell shows it."""
        failed = [host.exit_code for host in self.hosts if host.exit_code]
        if self.first_failure is not None:
            failed = [self.hosts[self.first_failure].exit_code]
        return 0 if not failed else failed[0] if failed[0] > 0 else 128 - failed[0]

    def check(self) -> Result:
        """Return this result, or raise with the last lines of the host that failed first."""
        if self.ok:
            return self
        failed = next(host.host for host in self.hosts if host.exit_code)
        host = self.hosts[failed if self.first_failure is None else self.first_failure]
        last = "\n".join(host.output.splitlines()[-_LAST_LINES:])
        raise CommError(
            f"lab: host {host.host}: expected exit code 0, got {host.exit_code} after {host.seconds:.1f} s;"
            f" its last lines:\n{last}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Numbers for a result file; the output is left out."""
        fields = ("host", "exit_code", "seconds", "bytes_sent", "bytes_received", "ended_by_lab")
        return {
            "seconds": self.seconds,
            "exit_code": self.exit_code,
            "exit_codes": self.exit_codes,
            "first_failure": self.first_failure,
            "hosts": [{field: getattr(host, field) for field in fields} for host in self.hosts],
        }
