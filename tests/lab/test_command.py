"""``laconic lab`` as a person uses it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shlex
import struct
import subprocess
import sys
import termios

from tests import warm
from tests.cli.forked import laconic
from tests.lab.conftest import PATIENCE_S, python

COMMAND_LINE = [sys.executable, "-c", "from laconic.cli import main; main()", "lab"]


def lab(*arguments):
    return laconic("lab", *arguments)


def test_it_runs_the_command_on_every_host_and_shows_the_bytes(machine, tmp_path):
    file = tmp_path / "result.json"
    done = lab("--hosts", 3, "--mbps", 1000, "--json", file, "--", "sh", "-c", "echo I am $RANK --pin")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"host{host} | I am {host} --pin" for host in range(3)]
    assert "bytes sent" in done.stderr
    result = json.loads(file.read_text())
    assert result["exit_codes"] == [0, 0, 0]
    assert result["rate"] == "1000mbit"
    assert [host["bytes_sent"] for host in result["hosts"]] == [0, 0, 0]


def test_its_exit_code_is_that_of_the_first_host_that_failed(machine):
    done = lab("--hosts", 2, "--grace", 0, "--", "sh", "-c", "[ $RANK = 0 ] && exec sleep 1000; exit 7")
    assert done.returncode == 7
    assert "7 (failed first)" in done.stderr


def test_json_on_standard_output_is_all_there(machine):
    done = lab("--json", "-", "--", "echo", "from a host")
    assert json.loads(done.stdout)["exit_code"] == 0
    assert "host1 | from a host" in done.stderr


def test_host_0_has_a_terminal_where_the_command_has_one(machine):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))
    script = "import os; print(os.isatty(1), *(os.get_terminal_size() if os.isatty(1) else ()))"
    subprocess.run(
        [*COMMAND_LINE, "--", *python(script)],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        timeout=PATIENCE_S,
        check=True,
    )
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    os.close(theirs)
    assert sorted(shown.splitlines()) == ["True 77 33", "host1 | False"]


def test_check_lists_what_a_lab_needs(machine, tmp_path):
    script = (
        tmp_path / "python"
    )  # what hosts run with -c imports torch; the keeper of the lab, with -P, does not
    started = f'[ "$1" = -c ] && exec {shlex.join(warm.python())} "$@" || exec {sys.executable} "$@"'
    script.write_text(f"#!/bin/sh\n{started}\n")
    script.chmod(0o755)
    program = f"import sys; sys.executable = {str(script)!r}; from laconic.cli import main; main()"
    command = [*warm.python(), "-c", program, "lab", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout
    for need in ("user namespace", "network namespaces", "bridge", "veth", "tbf", "gloo"):
        assert need in done.stdout


def test_errors_are_one_line_and_an_exit_code(tmp_path):
    for arguments, message in [
        (
            ["--mbps", "0", "--", "true"],
            "lab: mbps: expected 0.064 to 32000 Mbit/s, got 0.0; leave it out for no limit",
        ),
        (["--hosts", "0", "--", "true"], "lab: hosts: expected a number from 1 to 250, got 0"),
        (
            [],
            "lab: command: expected a program after '--', got nothing; write 'laconic lab --hosts 2 -- python train.py'",
        ),
        (
            ["--json", tmp_path / "no" / "x", "--", "true"],
            f"--json: no folder '{tmp_path / 'no'}' to write into; make it first",
        ),
    ]:
        done = lab(*arguments)
        assert (done.returncode, done.stderr) == (2, f"laconic: {message}\n")
