"""``laconic profile`` from data to a file, a page and a summary, and its ways out."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest
from typer.testing import CliRunner

from laconic.cli import app
from laconic.errors import ConfigError
from laconic.plan.access.access_file import read_access
from tests.cli.forked import laconic
from tests.data.tables import write
from tests.warm import python

RUN = """
[data]
kind = "synthetic"
rows = [50, 2000, 5]
bags = [1, 1, 3]
dense = 2
samples = 4096
"""
COLUMNS = (
    "label = 'label'\n[[categorical]]\ncolumns = 'id'\n[[categorical]]\ncolumns = 'words'\nbuckets = 9\n"
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run.toml").write_text(RUN)
    return tmp_path


def test_a_run_becomes_a_file_a_page_and_a_summary(folder):
    done = laconic("profile", "run.toml", "--report", "a.html", "--json", "a.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(folder)) == ["a.html", "a.json", "access.parquet", "run.toml"]
    access = read_access(folder / "access.parquet")
    assert (access.source, access.samples) == ("run.toml", 4096)
    assert [table.rows for table in access.tables] == [50, 2000, 5]
    summary = json.loads((folder / "a.json").read_text())
    assert [table["distinct"]["rows"] for table in summary["tables"]] == [
        table.distinct.rows for table in access.tables
    ]
    assert summary["tables"][2]["mean_bag"] == access.table("c2").mean_bag
    page = (folder / "a.html").read_text()
    assert "<h1>Lookups of run.toml</h1>" in page
    assert [f'data-chart="table-{n}"' in page for n in range(4)] == [True, True, True, False]
    for word in ("c0", "2,000", "4,096 samples", "All counts are exact.", "access.parquet has all counts"):
        assert word in done.stdout


def test_settings_can_be_changed_and_json_goes_to_stdout(folder, monkeypatch):
    monkeypatch.chdir(folder)
    arguments = ["run.toml", "--set", "data.samples=0", "--json", "-", "--out", "b.parquet"]
    done = CliRunner().invoke(app, ["profile", *arguments])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert [table["lookups"] for table in summary["tables"]] == [0, 0, 0]
    assert read_access("b.parquet").samples == 0


def test_parquet_is_profiled_with_its_columns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "set")
    (tmp_path / "columns.toml").write_text(COLUMNS)
    assert CliRunner().invoke(app, ["profile", "set", "--columns", "columns.toml"]).exit_code == 0
    (tmp_path / "set" / "schema.toml").write_text(COLUMNS)
    assert CliRunner().invoke(app, ["profile", "set", "--out", "again.parquet"]).exit_code == 0
    first, second = (read_access(name) for name in ("access.parquet", "again.parquet"))
    assert [table.name for table in first.tables] == ["id", "words"]
    assert [table.lookups for table in first.tables] == [table.lookups for table in second.tables]
    assert first.table("words").bags[0][0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "nothing: no such file or folder"),
        (("nothing.toml",), "nothing.toml: no such file"),
        (
            ("log.txt",),
            "log.txt: expected *.toml, *.parquet or a folder of them; laconic prepare makes one of raw logs",
        ),
        (("set",), "set: no schema.toml in it; say what the columns are with --columns FILE.TOML"),
        (
            ("set", "--set", "data.seed=1"),
            "--set: expected the settings of a run (*.toml) to change, got 'set'",
        ),
        (
            ("run.toml", "--columns", "c.toml"),
            "--columns: 'run.toml' says what the columns are; use --set data.columns=FILE",
        ),
        (("run.toml", "--out", "no/a"), "--out: no folder 'no' to write into; make it first"),
        (("run.toml", "--out", "set"), "--out: expected a file, got the folder 'set'"),
        (("run.toml", "--report", "no/a"), "--report: no folder 'no' to write into; make it first"),
        (("run.toml", "--json", "no/a"), "--json: no folder 'no' to write into; make it first"),
    ],
)
def test_what_cannot_work_is_said_before_the_pass(folder, monkeypatch, arguments, message):
    (folder / "set").mkdir()
    (folder / "log.txt").write_text("1\t2\n")
    monkeypatch.chdir(folder)
    error = CliRunner().invoke(app, ["profile", *arguments]).exception
    assert isinstance(error, ConfigError)
    assert str(error) == message
    assert sorted(os.listdir(folder)) == ["log.txt", "run.toml", "set"]


def test_an_interrupt_leaves_no_file(folder):
    script = (
        "import os, signal; from laconic.plan.access.profile import Profiler; from laconic.cli import main\n"
        "Profiler.add = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "main()"
    )
    command = [*python(), "-c", script, "profile", "run.toml", "--json", "a.json", "--report", "a.html"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 130, -signal.SIGINT)  # as the version of typer has it
    assert "Traceback" not in done.stderr
    assert os.listdir(folder) == ["run.toml"]


def test_names_of_files_need_not_be_text(folder, monkeypatch):
    monkeypatch.chdir(folder)
    name = os.fsdecode(b"run\xff.toml")
    (folder / name).write_text(RUN)
    done = CliRunner().invoke(app, ["profile", name])
    assert done.exception is None
    assert read_access("access.parquet").source == "run?.toml"
