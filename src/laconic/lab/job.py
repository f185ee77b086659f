"""A running job: one process per host, and a thread that keeps its output and ends it in order.

::

    a host fails --grace_s--> SIGTERM to the others --3 s--> SIGKILL
    stop()       -----------> SIGTERM to all        --3 s--> SIGKILL
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from laconic.errors import CommError, ConfigError
from laconic.lab.connection import Connection
from laconic.lab.result import HostResult, Output, Result

_KILL_AFTER_S = 3.0


class Job:
    """A command that runs on every host of a lab; made by ``Lab.start``."""

    def __init__(
        self,
        keeper: Connection,
        *,
        pids: Sequence[int],
        outputs: Sequence[Output],
        events: int,
        counters: Sequence[Sequence[int]],
        grace_s: float,
    ) -> None:
        self.pids = tuple(pids)
        """Number of every host's process, as seen from outside."""
        self._keeper = keeper
        self._outputs = outputs
        self._events = events
        self._before = counters
        self._grace_s = grace_s
        self._began = time.monotonic()
        self._exits: dict[int, tuple[int, float, bool]] = {}
        """Exit code, seconds, and whether the lab ended it, for every host that has ended."""
        self._first_failure: int | None = None
        self._end_at: float | None = None
        self._kill_at: float | None = None
        self._ended: set[int] = set()
        self._result: Result | None = None
        self._trouble: Exception | None = None
        self._news = threading.Condition()
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._watch, name="laconic-lab-job", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether any host's process still runs."""
        return self._thread.is_alive()

    def output(self, host: int = 0) -> str:
        """Return all that a host has written so far."""
        return self._outputs[host].text

    def wait(self, timeout_s: float | None = None) -> Result:
        """Wait until every host has ended; after ``timeout_s`` CommError, and the job goes on."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            slow = [host for host in range(len(self.pids)) if host not in self._exits]
            raise CommError(
                f"lab: expected every host to end within {timeout_s:g} s, got {_named(slow)} still running;"
                " raise timeout_s or read what they wrote"
            )
        if self._trouble is not None:
            raise self._trouble
        assert self._result is not None
        return self._result

    def wait_for(self, text: str, host: int = 0, timeout_s: float | None = None) -> None:
        """Wait until a host has written this; CommError after ``timeout_s`` or if it ends first."""

        def settled() -> bool:
            return text in self.output(host) or not self._watching

        with self._news:
            in_time = self._news.wait_for(settled, timeout_s)
        if text not in self.output(host):
            why = "it ended" if in_time else f"{timeout_s:g} s went by"
            raise CommError(
                f"lab: host {host}: expected it to write {text!r}, got {self.output(host)[-500:]!r} when {why}"
            )

    def signal(self, host: int, number: int) -> None:
        """Send a signal to one host's process and its group."""
        if not 0 <= host < len(self.pids):
            raise ConfigError(f"lab: host: expected 0 to {len(self.pids) - 1}, got {host!r}")
        self._keeper.ask("signal", hosts=[host], number=int(number))

    def stop(self) -> Result:
        """End every host that still runs, and wait for it."""
        self._end_at = time.monotonic()
        with suppress(OSError):  # the thread has ended and closed it
            self._wake.send(b"!")
        return self.wait()

    @property
    def _watching(self) -> bool:
        return self._result is None and self._trouble is None

    def _watch(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                self._follow(selector)
            for output in self._outputs:
                output.drain()
            self._result = self._summary()
        except (CommError, OSError, ValueError) as error:  # shown to whoever waits
            self._trouble = error
            with suppress(CommError):
                self._keeper.ask("signal", hosts=list(range(len(self.pids))), number=int(signal.SIGKILL))
        finally:
            os.close(self._events)
            self._wake.close()
            self._woken.close()
            for output in self._outputs:
                output.close()
            with self._news:
                self._news.notify_all()

    def _follow(self, selector: selectors.BaseSelector) -> None:
        selector.register(self._events, selectors.EVENT_READ)
        selector.register(self._woken, selectors.EVENT_READ)
        for output in self._outputs:
            selector.register(output.source, selectors.EVENT_READ, output)
        while len(self._exits) < len(self.pids):
            for key, _ in selector.select(self._patience()):
                if isinstance(key.data, Output):
                    if key.data.read() is False:
                        selector.unregister(key.fileobj)
                    with self._news:
                        self._news.notify_all()
                elif key.fd == self._events:
                    self._note_exits()
                else:
                    self._woken.recv(64)
            self._end_in_order()

    def _note_exits(self) -> None:
        lines = os.read(self._events, 65536)
        if not lines:
            raise CommError("lab: the keeper ended while the job ran; its hosts were killed with it")
        for line in lines.splitlines():
            event = json.loads(line)
            host, code, now = event["host"], event["exit_code"], time.monotonic()
            asked = host in self._ended
            self._exits[host] = (code, now - self._began, asked)
            if code != 0 and not asked and self._first_failure is None:
                self._first_failure = host
                self._end_at = self._end_at or now + self._grace_s

    def _patience(self) -> float | None:
        due = [moment for moment in (self._end_at, self._kill_at) if moment is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _end_in_order(self) -> None:
        now = time.monotonic()
        left = [host for host in range(len(self.pids)) if host not in self._exits]
        if self._end_at is not None and now >= self._end_at:
            self._end_at = None
            self._ended.update(left)
            if self._kill_at is None:
                self._kill_at = now + _KILL_AFTER_S
            self._keeper.ask("signal", hosts=left, number=int(signal.SIGTERM))
        elif self._kill_at is not None and now >= self._kill_at:
            self._kill_at = now + _KILL_AFTER_S
            self._keeper.ask("signal", hosts=left, number=int(signal.SIGKILL))

    def _summary(self) -> Result:
        after = self._keeper.ask("counters")["counters"]
        hosts = []
        for host, output in enumerate(self._outputs):
            code, seconds, asked = self._exits[host]
            sent, received = (now - then for now, then in zip(after[host], self._before[host], strict=True))
            hosts.append(
                HostResult(
                    host=host,
                    exit_code=code,
                    seconds=seconds,
                    bytes_sent=sent,
                    bytes_received=received,
                    output=output.text,
                    ended_by_lab=asked,
                )
            )
        seconds = max(host.seconds for host in hosts)
        return Result(hosts=tuple(hosts), seconds=seconds, first_failure=self._first_failure)


def _named(hosts: Sequence[int]) -> str:
    return f"host {hosts[0]}" if len(hosts) == 1 else f"hosts {', '.join(map(str, hosts))}"
