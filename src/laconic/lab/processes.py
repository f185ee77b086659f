"""Processes of a job: started in a host's namespaces, and gone with the keeper."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from laconic.lab import linux

_NOT_FOUND, _NOT_RUNNABLE = 127, 126  # as a shell would say
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Host:
    """Where a process of a job runs."""

    name: str
    """Name that the process sees as its host's."""
    namespace: int
    """Descriptor of the host's network namespace."""
    core: int | None
    """The only core that the process may use; None: any."""


def spawn(
    command: Sequence[str], host: Host, *, environment: Mapping[str, str], folder: str, output: int
) -> int:
    """Start a command on a host and return its process.

    The process leads a session, so that a signal reaches everything it starts.
    """
    keeper = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # until the child has dropped the keeper's handlers
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        return pid
    try:
        for number in (*_ENDING, signal.SIGPIPE, signal.SIGXFSZ):  # python ignores the last two
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        os.setsid()
        linux.die_with_parent(signal.SIGKILL)
        if os.getppid() != keeper:  # it ended before it was asked
            os._exit(1)
        linux.enter(host.namespace)
        linux.unshare(linux.CLONE_NEWUTS)
        linux.set_hostname(host.name)
        if host.core is not None:
            os.sched_setaffinity(0, {host.core})
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        os.execvpe(command[0], list(command), dict(environment))
    except OSError as error:
        os.write(2, f"laconic lab: {command[0]}: {error.strerror}\n".encode())
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUNNABLE)
    finally:
        os._exit(_NOT_RUNNABLE)


def send_signal(leader: int, number: int) -> None:
    """Signal a process and its group; before it leads a group, the process alone."""
    with suppress(ProcessLookupError, PermissionError):
        try:
            os.killpg(leader, number)
        except ProcessLookupError:
            os.kill(leader, number)


def reap() -> list[tuple[int, int]]:
    """Collect processes that ended, with their exit codes, and end the rest of their groups.

    The kernel does not say which of several ended first. A killed one comes first in the list: the
    death of a peer makes others exit or abort, but does not kill them.
    """
    ended: list[tuple[int, int]] = []
    while (pid := _next_ended()) is not None:
        send_signal(pid, signal.SIGKILL)  # before its number can belong to another
        _, status = os.waitpid(pid, 0)
        ended.append((pid, os.waitstatus_to_exitcode(status)))
    return sorted(ended, key=lambda end: end[1] >= 0 or end[1] == -signal.SIGABRT)


def _next_ended() -> int | None:
    try:
        state = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if state is None else state.si_pid


def end_all() -> None:
    """Kill every descendant; children of a killed one become ours, so look until none is left."""
    while found := linux.children():
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in found:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
