"""``laconic aggregator``, and what ``laconic lab`` knows of aggregation."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from laconic import bpf
from laconic.cli import app
from laconic.errors import ConfigError, PlanError
from laconic.lab import Lab, faults
from laconic.reduce.network import InNetwork, xdp
from tests.reduce.network.conftest import PATIENCE_S, free_address


def test_it_makes_up_a_job_serves_it_and_says_what_it_did(tmp_path):
    address = free_address()
    report = tmp_path / "report.json"
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", "from laconic.cli import main; main()", "aggregator"),
            *("--listen", address, "--workers", "1", "--json", str(report)),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUNBUFFERED": "1"},
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"aggregating on {address}, in user space\n"
        found = re.fullmatch(r"job ([0-9a-f]{16}): 1 workers\n", process.stdout.readline())
        assert found
        with InNetwork(address, job=int(found[1], 16), worker=0, workers=1) as network:
            values = np.array([1, -2, 3], dtype=np.int32)
            network.add(values)
        assert values.tolist() == [1, -2, 3]
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(PATIENCE_S) == 0
    assert re.search(r"results +1\b", rest)
    written = json.loads(report.read_text())
    assert written["jobs"] == [found[1]]
    assert written["counters"]["results"] == written["counters"]["packets"] == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--job", "12"], "aggregator: job: expected 16 hexadecimal digits, got '12'; leave it out"),
        (["--job", "0123456789abcdeg"], "expected 16 hexadecimal digits, got '0123456789abcdeg'"),
        (["--interface", "nothing0"], "--interface: no interface 'nothing0'; known: lo"),
        (["--listen", "192.0.2.1"], "expected to listen on 192.0.2.1:9917, got 'Cannot assign"),
        (["--workers", "33"], "aggregator: workers: expected 1 to 32, got 33"),
        (["--json", "/nowhere/x.json"], "--json: no folder '/nowhere'"),
    ],
)
def test_what_cannot_be_is_refused(arguments, text):
    result = CliRunner().invoke(app, ["aggregator", "--listen", free_address(), *arguments])
    assert isinstance(result.exception, ConfigError | PlanError)
    assert text in str(result.exception)


def test_a_check_says_whether_the_kernel_can_and_if_not_why(monkeypatch):
    result = CliRunner().invoke(app, ["aggregator", "--check"])
    assert ("no" in result.output.split()) == (result.exit_code == 1)
    monkeypatch.setattr(bpf.shutil, "which", lambda _: None)
    monkeypatch.setattr(bpf, "find_spec", lambda _: None)
    assert [need.against for need in xdp.check()] == [
        None,
        "no clang and no zig found; install one (Debian, Ubuntu: apt-get install clang;"
        " any machine: pip install 'laconic[xdp]')",
        "a compiler and libbpf are needed first",
    ]
    with pytest.raises(PlanError, match=r"^eBPF: no clang and no zig found; install one \(Debian"):
        bpf.Program(bpf.Path("x.bpf.c"), {})


def test_a_missing_libbpf_is_named(monkeypatch):
    monkeypatch.setattr(bpf, "_LIBRARIES", ("libbpf.so.99",))
    monkeypatch.setattr(bpf, "_compiler", lambda: ["cc"])
    assert str(bpf.tools_lacking()).startswith("no libbpf found (libbpf.so.99); install it (Debian")


@pytest.mark.parametrize("hidden", ["clang", "zig"])
@pytest.mark.parametrize("source", [xdp._SOURCE, faults._SOURCE], ids=lambda source: source.name)
def test_either_compiler_makes_an_object_for_the_kernel(source, hidden, tmp_path, monkeypatch):
    if hidden == "clang":
        monkeypatch.setattr(bpf.shutil, "which", lambda _: None)
    elif bpf.shutil.which("clang") is None:
        pytest.skip("no clang on this machine (Debian, Ubuntu: apt-get install clang)")
    shares = {"LOSS": 1, "DUPLICATION": 1, "REORDERING": 1, "SEED": "1ULL", "WAYS": 2}
    compiled = bpf.compile_program(source, tmp_path, {**shares, "ADDRESS": 1, "PORT": 9917, "JOBS": 4})
    head = compiled.read_bytes()[:20]
    assert (head[:4], head[18:]) == (b"\x7fELF", b"\xf7\0")  # machine 247: eBPF


def test_one_machine_with_one_card_aggregates_in_the_kernel(kernel):
    """Host 0 is the aggregator, the others are workers; nothing but its own card is between them."""
    script = """
import os, signal, subprocess, sys, numpy as np
JOB = "00000000deadbeef"
rank = int(os.environ["RANK"])
if rank == 0:
    arguments = ["--listen", "10.0.0.1", "--interface", "eth0", "--job", JOB, "--workers", "2", "--json", "-"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from laconic.cli import main; main()", "aggregator", *arguments]
    )
    import socket
    with socket.create_server(("10.0.0.1", 7000)) as server:
        for _ in range(2):
            server.accept()[0].recv(1)
    process.send_signal(signal.SIGTERM)
    sys.exit(process.wait())
from laconic.reduce.network import InNetwork
import socket
with InNetwork("10.0.0.1", job=int(JOB, 16), worker=rank - 1, workers=2, timeout_s=60) as network:
    for size in (1, 100_000):
        values = np.full(size, rank, dtype=np.int32)
        network.add(values)
        assert (values == 3).all()
socket.create_connection(("10.0.0.1", 7000)).send(b"!")
"""
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with Lab(hosts=3) as lab:
        result = lab.run([sys.executable, "-c", script], env=env, timeout_s=PATIENCE_S * 2, grace_s=5).check()
    text = result.output[0]
    written = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert written["counters"]["results"] == 1 + -(-100_000 // 362)
    assert "in the kernel on eth0" in text
