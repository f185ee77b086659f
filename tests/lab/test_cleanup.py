"""Whatever ends a lab, no process and no namespace stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from laconic.errors import CommError
from laconic.lab import Lab
from tests.lab.conftest import PATIENCE_S, python, wait_until_gone

# a host that starts a process which leaves its session, as a careless program would
STRAY = """
import subprocess
stray = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print("ready", stray.pid, flush=True)
stray.wait()
"""
OWNER = """
import json, sys
from laconic.lab import Lab
with Lab(hosts=2) as lab:
    job = lab.start([sys.executable, "-c", sys.argv[1]])
    for host in range(2):
        job.wait_for("\\n", host=host, timeout_s=60)
    strays = [int(job.output(host).split()[1]) for host in range(2)]
    print(json.dumps([lab.keeper_pid, *job.pids, *strays]), flush=True)
    job.wait()
"""
COMMAND_LINE = [sys.executable, "-c", "from laconic.cli import main; main()"]


@pytest.fixture
def everything(machine):
    """Processes that must end, kept by a lab in a process of its own."""
    with subprocess.Popen([sys.executable, "-c", OWNER, STRAY], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        yield owner, json.loads(owner.stdout.readline())


def namespaces_of(pids):
    return {os.stat(f"/proc/{pid}/ns/net").st_ino for pid in pids}


def namespaces_in_use():
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.add(os.stat(f"/proc/{name}/ns/net").st_ino)
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_a_lab_that_is_killed(everything, number):
    owner, pids = everything
    inside = namespaces_of(pids)
    owner.send_signal(number)
    owner.wait(PATIENCE_S)
    for pid in pids:
        wait_until_gone(pid)
    assert not inside & namespaces_in_use()


def test_hosts_die_with_a_keeper_that_is_killed(machine):
    with Lab(hosts=2) as lab:
        job = lab.start(["sleep", "1000"])
        os.kill(lab.keeper_pid, signal.SIGKILL)
        with pytest.raises(CommError, match=r"^lab: the keeper ended while the job ran"):
            job.wait(PATIENCE_S)
        for pid in job.pids:
            wait_until_gone(pid)


def test_an_exception_closes_the_lab(machine):
    pids = []

    def work():
        with Lab(hosts=2) as lab:
            job = lab.start(python(STRAY))
            for host in range(2):
                job.wait_for("\n", host=host, timeout_s=PATIENCE_S)
                pids.append(int(job.output(host).split()[1]))
            pids.extend([lab.keeper_pid, *job.pids])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert len(pids) == 5
    for pid in pids:
        wait_until_gone(pid)


def test_a_process_that_a_host_leaves_behind_ends_with_its_host(pair):
    result = pair.run(["sh", "-c", "sleep 1000 & echo $!"], timeout_s=PATIENCE_S).check()
    for text in result.output:
        wait_until_gone(int(text))


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_a_signal_to_the_command_ends_every_host(machine, number, exit_code):
    command = [*COMMAND_LINE, "lab", "--hosts", "2", "--", *python(STRAY)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        assert running.stdout is not None
        strays = [int(running.stdout.readline().split()[-1]) for _ in range(2)]
        os.killpg(running.pid, number)  # as the terminal does
        running.communicate(timeout=PATIENCE_S)
    assert running.returncode == exit_code
    for pid in strays:
        wait_until_gone(pid)
