"""The lab's connection to its keeper: it starts the keeper, asks it and ends it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from laconic.errors import CommError, PlanError
from laconic.lab import channel
from laconic.lab.steps import StepError

_CLOSE_S = 10.0


class Connection:
    """A running keeper. Several threads may ask it; their questions are answered one by one."""

    def __init__(self, plan: dict[str, Any]) -> None:
        """Start a keeper and let it build; ``plan`` has what ``keeper.main`` reads."""
        if sys.platform != "linux":
            raise PlanError(
                f"lab: expected Linux with network namespaces, got {sys.platform!r}; run it in a Linux machine"
            )
        if find_spec("pyroute2") is None:
            raise PlanError("lab: pyroute2 is not installed; run \"pip install 'laconic[lab]'\"")
        self._asking = threading.Lock()
        self._channel, theirs = socket.socketpair()
        arguments = [str(theirs.fileno()), str(os.getpid()), json.dumps(plan)]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "laconic.lab.keeper", *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C is for the lab, which then ends the keeper
            )
        try:
            answer = self._receive()
        except BaseException:
            self.close()
            raise
        if failure := answer.get("failure"):
            self.close()
            raise StepError(**failure)
        if text := answer.get("error"):
            self.close()
            raise PlanError(text)
        self.privilege: str = answer["privilege"]
        self.pid = self._process.pid

    def ask(self, do: str, descriptors: Sequence[int] = (), **settings: Any) -> dict[str, Any]:
        """Send a message and wait for its answer."""
        with self._asking:
            try:
                channel.send(self._channel, {"do": do, **settings}, descriptors)
                answer = self._receive()
            except OSError as error:
                raise CommError(f"lab: {do}: the keeper is gone ({error.strerror or error})") from error
            except BaseException:  # Ctrl-C: the answer would be taken for that of the next question
                self._channel.close()
                raise
        if error_text := answer.get("error"):
            raise PlanError(error_text)
        return answer

    def _receive(self) -> dict[str, Any]:
        try:
            return channel.receive(self._channel)[0]
        except EOFError:
            code = self._process.wait(_CLOSE_S)
            stderr = self._process.stderr
            last = stderr.read().decode(errors="replace").strip() if stderr else ""
            raise CommError(f"lab: the keeper ended with exit code {code}; it said: {last!r}") from None

    def close(self) -> None:
        """Let the keeper end everything that runs, and wait until it has."""
        self._channel.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stderr:
            self._process.stderr.close()
