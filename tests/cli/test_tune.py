"""``laconic tune`` from settings to a policy file, and its ways out."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from laconic.adapt import BUDGET
from laconic.adapt.tune import MOST_STEPS, SHARE
from laconic.cli import plan
from laconic.cli import tune as tune_command
from laconic.cli.tune import parse_budget
from laconic.config import load
from laconic.cost.speeds import EngineSpeeds
from laconic.errors import ConfigError
from laconic.report import read_any
from laconic.train.settings import RunSettings
from tests.cli.forked import laconic
from tests.warm import python

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "adaptation.md"
RUN = """
[data]
kind = "synthetic"
rows = [50, 2000, 5]
dense = 2
samples = 5120
eval_samples = 64
[model]
dim = 8
bottom = [8]
top = [8]
[train]
batch = 32
"""


def tune(folder, *arguments):
    return laconic("tune", "run.toml", "--ranks", 2, "--steps", 16, *arguments, cwd=folder)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A folder after a run of the command, and what it printed."""
    folder = tmp_path_factory.mktemp("tune")
    (folder / "run.toml").write_text(RUN)
    done = tune(folder, "--json", "tune.json", "--report", "tune.html", "--budget", "0.1%")
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run.toml").write_text(RUN)
    return tmp_path


def test_the_command_writes_policy_result_and_page(tuned):
    folder, _ = tuned
    assert sorted(os.listdir(folder)) == ["policy.toml", "run.toml", "tune.html", "tune.json"]
    assert "<h1>run.toml</h1>" in (folder / "tune.html").read_text()
    result = read_any(folder / "tune.json")
    assert (result.ranks, result.steps, result.budget) == (2, 16, 0.001)
    assert result.harm <= result.budget


def test_a_run_takes_the_bounds_from_the_policy_file(tuned):
    folder, _ = tuned
    settings = load(folder / "run.toml", RunSettings, (f"compression.policy={folder / 'policy.toml'}",))
    given = settings.compression.effective().tables
    tables = read_any(folder / "tune.json").tables
    assert [*given] == ["c0", "c1", "c2"]
    assert [table.rows.bound for table in given.values()] == [table.forward.chosen.bound for table in tables]
    assert [table.gradients.bound for table in given.values()] == [
        table.backward.chosen.bound for table in tables
    ]


def test_the_command_shows_every_table_and_what_to_write_next(tuned):
    _, shown = tuned
    for word in ("c0", "c1", "c2", "2,000", "gradients", "HI 1.00", "measured as 2 ranks, after 16 steps"):
        assert word in shown
    assert shown.rstrip().endswith('[compression]\n  policy = "policy.toml"')


def test_a_policy_file_is_replaced_only_by_force(tuned):
    folder, _ = tuned
    before = (folder / "policy.toml").read_bytes()
    done = tune(folder)
    assert (done.returncode, done.stderr.strip()) == (
        2,
        "laconic: --out: 'policy.toml' exists; choose another name, or replace it with --force",
    )
    assert (folder / "policy.toml").read_bytes() == before
    (folder / "policy.toml").write_text("mine")
    done = tune(folder, "--force", "--budget", "0.001", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert (folder / "policy.toml").read_bytes() == before
    assert json.loads(done.stdout) == json.loads((folder / "tune.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "much"), "--budget: expected a share of the loss, as 0.05% or 0.0005, got 'much'"),
        (("--out", "no/p.toml"), "--out: no folder 'no' to write into; make it first"),
        (("--json", "no/t.json"), "--json: no folder 'no' to write into; make it first"),
        (("--report", "no/t.html"), "--report: no folder 'no' to write into; make it first"),
        (("--out", "policy"), "--out: expected a file named *.toml, got 'policy'; a run knows it by that"),
        (
            ("--set", "data.samples=640"),
            "tune: an epoch has 10 batches of 32 samples on 2 ranks, and measuring takes 4 of them; "
            "expected --steps of 8 to 6, got 16",
        ),
    ],
)
def test_what_cannot_work_is_said_before_measuring(folder, arguments, message):
    done = tune(folder, *arguments)
    assert (done.returncode, done.stderr.strip()) == (2, f"laconic: {message}")
    assert os.listdir(folder) == ["run.toml"]


def test_an_interrupt_leaves_no_file(folder):
    # interrupted when the first step is trained: the middle of the work, however fast the machine
    script = (
        "import os, signal; from laconic.adapt.tune.run import RehearsedRun; from laconic.cli import main\n"
        "RehearsedRun.train = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "main()"
    )
    command = [*python(), "-c", script, "tune", "run.toml", "--ranks", "2", "--steps", "16"]
    command += ["--json", "t.json", "--report", "t.html"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 130, -signal.SIGINT)  # as the version of typer has it
    assert "laconic:" not in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(folder) == ["run.toml"]


@pytest.mark.parametrize(
    ("text", "value"), [("0.05%", 0.0005), ("0.0005", 0.0005), ("1e-3", 0.001), ("5 %", 0.05)]
)
def test_a_budget_is_read_in_percent_or_as_it_is(text, value):
    assert parse_budget(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("text", ["0", "1", "100%", "-1%", "nan", "%", "", "0.05%%"])
def test_a_budget_that_is_no_share_is_refused(text):
    with pytest.raises(
        ConfigError, match=r"^--budget: expected a share of the loss, as 0\.05% or 0\.0005, got "
    ):
        parse_budget(text)


def help_of(command, name):
    return inspect.signature(command).parameters[name].default.help


def test_help_says_the_defaults_that_the_code_has():
    assert f"Default: {100 * BUDGET:g}%." in help_of(tune_command.tune, "budget")
    assert f"{SHARE} of an epoch, at most {MOST_STEPS:,}" in help_of(tune_command.tune, "steps")
    assert f"{100 * BUDGET:g} % of the loss" in GUIDE.read_text()
    assert f"Default: {EngineSpeeds().overlap}." in help_of(plan.plan, "overlap")
