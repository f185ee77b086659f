"""The result of a job in the lab: exit codes, bytes over the links, output, time.

Output is kept for the result, and shown as it is written. On a terminal, host 0 has a terminal too,
so that its progress bars work, and its output is shown as it is; a line of another host begins with
the host's name. In a file or a pipe every line does, unless there is only one host.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import termios
from dataclasses import dataclass
from typing import Any, TextIO

from laconic.errors import CommError

_LAST_LINES = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class HostResult:
    """Exit code, time, bytes and output of one host."""

    host: int
    exit_code: int
    """Exit code as in ``subprocess``: negative for the signal that ended the process."""
    seconds: float
    """Seconds from the start of the run to the end of this host's process."""
    bytes_sent: int
    """Bytes sent during the run, by the interface's counter: payload, headers, repeated packets."""
    bytes_received: int
    output: str
    """Standard output and error, in the order of writing."""
    ended_by_lab: bool
    """Whether the lab told it to end, after another host failed or on request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """Results of all hosts of a run."""

    hosts: tuple[HostResult, ...]
    seconds: float
    first_failure: int | None
    """Host that was the first to fail by itself; None where none did."""

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
        """Return this result, or raise CommError with the last lines of the first host to fail."""
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
        """Return the figures for a result file, without the output."""
        fields = ("host", "exit_code", "seconds", "bytes_sent", "bytes_received", "ended_by_lab")
        return {
            "seconds": self.seconds,
            "exit_code": self.exit_code,
            "exit_codes": self.exit_codes,
            "first_failure": self.first_failure,
            "hosts": [{field: getattr(host, field) for field in fields} for host in self.hosts],
        }


_CHUNK_BYTES = 65536


class Screen:
    """Where the output of all hosts is shown; None shows nothing."""

    def __init__(self, stream: TextIO | None, hosts: int) -> None:
        self._stream = stream
        self.terminal = stream is not None and stream.isatty()
        self._plain = {0} if self.terminal or hosts == 1 else set()
        self._width = max(len(f"host{host}") for host in range(hosts))
        self._partial = dict.fromkeys(range(hosts), "")
        self._in_line = False

    def show(self, host: int, text: str) -> None:
        """Show what a host wrote: at once for a host shown as it is, line by line for others."""
        if self._stream is None or not text:
            return
        if host in self._plain:
            self._in_line = not text.endswith("\n")
        else:
            *lines, self._partial[host] = (self._partial[host] + text).split("\n")
            if not lines:
                return
            text = "".join(f"{f'host{host}':<{self._width}} | {line}\n" for line in lines)
            if self._in_line:  # leave the progress bar of host 0 whole
                text = "\n" + text
            self._in_line = False
        self._stream.write(text)
        self._stream.flush()

    def finish(self, host: int) -> None:
        """Show a last line that does not end with a newline."""
        if self._partial[host]:
            self.show(host, "\n")

    def window_size(self) -> bytes | None:
        """Rows and columns of the terminal, as the kernel packs them."""
        if self._stream is None or not self.terminal:
            return None
        return fcntl.ioctl(self._stream.fileno(), termios.TIOCGWINSZ, bytes(8))


class Output:
    """What one host writes: a pipe, or a terminal of its own."""

    def __init__(self, host: int, screen: Screen) -> None:
        self.host = host
        self._screen = screen
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._chunks: list[str] = []
        self._size: bytes | None = None
        self._is_terminal = host == 0 and screen.terminal
        if self._is_terminal:
            self.source, self.theirs = pty.openpty()
            attributes = termios.tcgetattr(self.theirs)
            attributes[1] &= ~termios.OPOST  # the real terminal adds the carriage returns
            termios.tcsetattr(self.theirs, termios.TCSANOW, attributes)
            self._fit()
        else:
            self.source, self.theirs = os.pipe()
        os.set_blocking(self.source, False)

    def _fit(self) -> None:
        size = self._screen.window_size()
        if size is not None and size != self._size:
            self._size = size
            fcntl.ioctl(self.source, termios.TIOCSWINSZ, size)

    def read(self) -> bool | None:
        """Read what is there; None where there is nothing yet, False at the end."""
        try:
            data = os.read(self.source, _CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:  # a terminal that all writers have closed
            data = b""
        if self._is_terminal:
            self._fit()
        self._take(self._decoder.decode(data, final=not data))
        return bool(data)

    def drain(self) -> None:
        """Read the rest without waiting for writers."""
        while self.read():
            pass
        self._screen.finish(self.host)

    def close(self) -> None:
        """Close our end."""
        os.close(self.source)

    def _take(self, text: str) -> None:
        if text:
            self._chunks.append(text)
            self._screen.show(self.host, text)

    @property
    def text(self) -> str:
        """All that was written so far."""
        return "".join(self._chunks)
