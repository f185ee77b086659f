"""Every example runs as its first lines say."""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path

from laconic.adapt.compression import Compression
from laconic.config import load
from laconic.data.columns import load_columns
from laconic.train.settings import RunSettings
from tests.distributed.ranks import free_port, server

EXAMPLES = Path(__file__).parents[2] / "examples"


def _run(out, given):
    os.environ.update({name: str(value) for name, value in given.items()})
    os.dup2(os.open(out, os.O_CREAT | os.O_WRONLY), 1)
    runpy.run_path(str(EXAMPLES / "own_loop.py"), run_name="__main__")


def test_the_loop_of_your_own_runs_on_two_ranks(tmp_path):
    given = {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "STEPS": 10}
    given["GLOO_SOCKET_IFNAME"] = "lo"
    ranks = [
        server().Process(target=_run, args=(tmp_path / str(rank), {**given, "RANK": rank}))
        for rank in range(2)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(120)
    assert [rank.exitcode for rank in ranks] == [0, 0]
    text = (tmp_path / "0").read_text()
    assert "step 10: loss of rank 0" in text
    assert "gradients" in text
    assert "dense" in text


def test_settings_of_examples_are_valid():
    load(EXAMPLES / "synthetic.toml", RunSettings)
    for name in ("book_crossing", "complete_journey"):
        load_columns(EXAMPLES / f"{name}.toml")


def test_figures_in_comments_of_the_loop_are_those_of_its_code():
    text = (EXAMPLES / "own_loop.py").read_text()
    (said,) = re.findall(
        r"rows are sent within ([\d.]+) % of their range, gradients within ([\d.]+) of their", text
    )
    usual = Compression()
    assert (float(said[0]) / 100, float(said[1])) == (usual.rows.bound, usual.gradients.bound)
