"""Every example runs as its first lines say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from laconic.config import load
from laconic.data.columns import load_columns
from laconic.train.settings import RunSettings
from tests.distributed.ranks import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"


def start(rank, ranks, port):
    given = {"RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "STEPS": 10}
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", **{name: str(value) for name, value in given.items()}}
    command = [sys.executable, str(EXAMPLES / "own_loop.py")]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def test_the_loop_of_your_own_runs_on_two_ranks():
    port = free_port()
    processes = [start(rank, 2, port) for rank in range(2)]
    texts = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert "step 10: loss of rank 0" in texts[0]
    assert "x fewer bytes" in texts[0]


def test_settings_of_examples_are_valid():
    load(EXAMPLES / "synthetic.toml", RunSettings)
    for name in ("book_crossing", "complete_journey"):
        load_columns(EXAMPLES / f"{name}.toml")


def test_figures_in_comments_of_the_loop_are_those_of_its_code():
    text = (EXAMPLES / "own_loop.py").read_text()
    (said,) = re.findall(r"rows within (\d+) % of their range, gradients within ([\d.]+) of their RMS", text)
    (rows,) = re.findall(r"forward=laconic\.BoundedRows\(bound=([\d.]+), relative=True", text)
    (gradients,) = re.findall(r'backward=laconic\.BoundedRows\(bound=([\d.]+), relative="rms"', text)
    assert (float(said[0]) / 100, float(said[1])) == (float(rows), float(gradients))
