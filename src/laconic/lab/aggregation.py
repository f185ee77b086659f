"""The lab's aggregator: a process in the switch's namespace, which the keeper tells of jobs.

The aggregator is a process of its own: the keeper forks, so it may have no threads, and it
need not wait for imports.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from laconic.errors import LaconicError, PlanError
from laconic.lab import channel, linux
from laconic.lab.hosts import AGGREGATOR_ADDRESS

__all__ = ["KINDS", "Aggregation"]

KINDS = ("xdp", "user")


class Aggregation:
    """The keeper's end: it starts the process and asks it."""

    def __init__(self, kind: str, interfaces: Sequence[int]) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            arguments = [str(theirs.fileno()), str(os.getpid()), kind, *map(str, interfaces)]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "laconic.lab.aggregation", *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._receive()

    def ask(self, do: str, **settings: Any) -> dict[str, Any]:
        """Send a message and wait for its answer; PlanError if it is a refusal."""
        try:
            channel.send(self._channel, {"do": do, **settings})
        except OSError as error:
            raise PlanError(f"lab: the aggregator is gone ({error.strerror or error})") from error
        return self._receive()

    def _receive(self) -> dict[str, Any]:
        try:
            answer, _ = channel.receive(self._channel)
        except EOFError:
            raise PlanError("lab: the aggregator is gone; see what it wrote to standard error") from None
        if text := answer.get("error"):
            raise PlanError(text)
        return answer


def _serve(control: socket.socket, kind: str, interfaces: Sequence[int]) -> None:
    from laconic.reduce.network import UserAggregator, XdpAggregator  # noqa: PLC0415  (torch: slow)

    try:
        aggregator = (
            XdpAggregator(AGGREGATOR_ADDRESS, interfaces)
            if kind == "xdp"
            else UserAggregator(AGGREGATOR_ADDRESS)
        )
    except LaconicError as error:
        channel.send(control, {"error": str(error)})
        return
    with aggregator:
        channel.send(control, {})
        while True:
            try:
                message, _ = channel.receive(control)
            except EOFError:
                return
            answer: dict[str, Any] = {}
            try:
                match message.pop("do"):
                    case "register":
                        aggregator.register(**message)
                    case "release":
                        aggregator.release(**message)
                    case "counters":
                        answer = dataclasses.asdict(aggregator.counters())
            except LaconicError as error:
                answer = {"error": str(error)}
            channel.send(control, answer)


def main(control: int, keeper: int, kind: str, interfaces: Sequence[int]) -> None:
    """Run until the keeper is gone."""
    linux.die_with_parent(signal.SIGKILL)
    if os.getppid() == keeper:
        _serve(socket.socket(fileno=control), kind, interfaces)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], [int(index) for index in sys.argv[4:]])
