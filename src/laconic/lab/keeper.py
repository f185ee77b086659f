"""The keeper: the process that holds a lab's namespaces and is parent to all that runs in them.

It does what it is told over a socket and decides nothing. It ends when the lab does: when the
socket closes or the lab's process is gone, by ``kill -9`` too. Then it kills its descendants, and
the namespaces go with its descriptors. If the keeper itself is killed, the process of every host is
killed with it.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from laconic.errors import PlanError
from laconic.lab import channel, linux, processes
from laconic.lab.aggregation import Aggregation
from laconic.lab.faults import Faults
from laconic.lab.hosts import addresses
from laconic.lab.network import Network
from laconic.lab.steps import StepError, step


def separate(hosts: int) -> str:
    """Move this process into namespaces of its own; return ``'root'`` or ``'user namespace'``.

    Without root's capabilities, a user namespace gives them for what is made inside. The user keeps
    number and name there, so files of a job belong to the user who started it.
    """
    privilege = "root"
    if not linux.may_administer_networks():
        with step("user namespace"):
            _enter_user_namespace()
        privilege = "user namespace"
    with step("mount namespace"):
        linux.unshare(linux.CLONE_NEWNS)
        linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
        _name_hosts(hosts)
    return privilege


def _enter_user_namespace() -> None:
    user, group = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _name_hosts(hosts: int) -> None:
    """Lay a file of our own over /etc/hosts, with each address in both forms.

    Torch listens on IPv6 and asks for the name of every peer; unanswered, it warns.
    """
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    for host, address in enumerate(addresses(hosts)):
        lines += [f"{address} host{host}", f"::ffff:{address} host{host}"]
    handle, name = tempfile.mkstemp(prefix="laconic-lab-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write("\n".join(lines) + "\n")
        os.chmod(name, 0o644)
        linux.mount(name, "/etc/hosts", "", linux.MS_BIND)
    finally:
        os.unlink(name)  # the mount keeps what the name showed


class Keeper:
    """Answers the lab's messages; one method ``do_...`` per kind of message."""

    def __init__(
        self, control: socket.socket, lab: int, network: Network, aggregation: Aggregation | None
    ) -> None:
        self._control = control
        self._lab = lab
        self._network = network
        self._aggregation = aggregation
        self._job: int | None = None
        """Number by which the aggregator knows the job."""
        self._running: dict[int, int] = {}
        """Host of every process that a job has started, by process."""
        self._events = -1
        """Descriptor to which exit codes of the job are written."""

    def serve(self) -> None:
        """Work until the lab is gone."""
        wake_read, wake_write = socket.socketpair()
        wake_read.setblocking(False)
        wake_write.setblocking(False)
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.DefaultSelector() as selector:
            for readable in (self._control, self._lab, wake_read):
                selector.register(readable, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._lab in ready:
                    return
                if wake_read in ready:
                    with suppress(BlockingIOError):
                        wake_read.recv(4096)
                    self._collect()
                if self._control in ready and not self._answer():
                    return

    def _answer(self) -> bool:
        try:
            message, descriptors = channel.receive(self._control)
        except EOFError:
            return False
        try:
            answer = getattr(self, f"do_{message.pop('do')}")(*descriptors, **message)
        except PlanError as error:
            answer = {"error": str(error)}
        with suppress(BrokenPipeError):  # the next read will tell
            channel.send(self._control, answer or {})
        return True

    def _collect(self) -> None:
        for pid, code in processes.reap():
            host = self._running.pop(pid, None)
            if host is None:  # an orphan that we adopted
                continue
            with suppress(BrokenPipeError):
                os.write(self._events, json.dumps({"host": host, "exit_code": code}).encode() + b"\n")
            if not self._running:
                os.close(self._events)

    def do_start(self, events: int, *outputs: int, **settings: Any) -> dict[str, Any]:
        """Start one process per host; output and exit codes go to the descriptors given."""
        if self._aggregation is not None:
            self._register(settings["aggregation_job"], len(outputs))
        self._events = events
        pids = []
        for host, output in enumerate(outputs):
            core = settings["cores"][host] if settings["cores"] else None
            pid = processes.spawn(
                settings["command"],
                processes.Host(f"host{host}", self._network.namespaces[host], core),
                environment=settings["environments"][host],
                folder=settings["folder"],
                output=output,
            )
            os.close(output)
            pids.append(pid)
            self._running[pid] = host
        return {"pids": pids}

    def _register(self, job: int, workers: int) -> None:
        assert self._aggregation is not None
        if self._job is not None:
            self._aggregation.ask("release", job=self._job)
        self._aggregation.ask("register", job=job, workers=workers)
        self._job = job

    def do_aggregator(self) -> dict[str, Any]:
        """Return the counters of the aggregator; the lab has checked that there is one."""
        assert self._aggregation is not None
        return {"counters": self._aggregation.ask("counters")}

    def do_signal(self, hosts: list[int], number: int) -> None:
        """Signal the processes of hosts, where they still run."""
        for pid, host in self._running.items():
            if host in hosts:
                processes.send_signal(pid, number)

    def do_mbps(self, mbps: float | None) -> None:
        """Set the bandwidth of all links."""
        self._network.set_mbps(mbps)

    def do_link(self, host: int, up: bool) -> None:
        """Let a link fail or come back."""
        self._network.set_link(host, up=up)

    def do_counters(self) -> dict[str, Any]:
        """Return the bytes sent and received by every host."""
        return {"counters": self._network.counters()}


def main(control_descriptor: int, lab_pid: int, plan: dict[str, Any]) -> None:
    """Build the network, report success or what failed, and serve."""
    control = socket.socket(fileno=control_descriptor)
    control.set_inheritable(False)
    try:
        lab = os.pidfd_open(lab_pid)
    except ProcessLookupError:
        return
    linux.adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    try:
        privilege = separate(plan["hosts"])
        network = Network(plan["hosts"], None if plan["faults"] is None else Faults(**plan["faults"]))
        network.set_mbps(plan["mbps"])
        aggregation = None
        if plan["aggregator"] is not None:
            network.add_aggregator(plan["aggregator"])
            aggregation = Aggregation(plan["aggregator"], network.bridge_ports)
    except StepError as error:
        failure = {"step": error.step, "code": error.code, "reason": error.reason}
        channel.send(control, {"failure": failure})
        return
    except PlanError as error:
        channel.send(control, {"error": str(error)})
        return
    channel.send(control, {"privilege": privilege, "pid": os.getpid()})
    try:
        Keeper(control, lab, network, aggregation).serve()
    finally:
        processes.end_all()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
