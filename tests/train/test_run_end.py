"""A run says which limit ended it: on the console, in its result, in its metrics and on its page."""

from __future__ import annotations

import json
from io import StringIO

from rich.console import Console

from laconic.report import read_any, render
from laconic.train.run import run
from tests.train.small_runs import settings_of

SMALL = ("data.samples=80", "data.eval_samples=0")  # five steps of 16 an epoch


def ended(folder, *overrides, resume=False):
    """Result, what was printed, and the page of a run."""
    text = StringIO()
    settings = settings_of(*SMALL, f"train.out={folder}", *overrides)
    result = run(settings, resume=resume, console=Console(file=text, width=200))
    page = render(read_any(folder)).rpartition("</header>")[0]
    return result, text.getvalue(), page


def test_steps_alone_repeat_the_data_until_they_are_taken(tmp_path):
    result, text, page = ended(tmp_path / "run", "train.steps=12")
    assert (result.steps, result.ended_by, result.epochs) == (12, "steps", 2.4)
    line = "ended after 12 steps, as train.steps says, in epoch 3 of the data"
    assert line in text
    assert line in page
    (entry,) = (
        json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines() if '"end"' in x
    )
    assert entry["ended_by"] == "steps"


def test_without_limits_a_run_ends_with_the_data(tmp_path):
    result, text, page = ended(tmp_path / "run")
    assert (result.steps, result.ended_by, result.epochs) == (5, "epochs", 1.0)
    assert "ended after 5 steps, at the end of the data" in text
    assert "ended after 5 steps, at the end of the data" in page


def test_epochs_that_end_before_the_steps_are_announced_and_named(tmp_path):
    result, text, page = ended(tmp_path / "run", "train.steps=500", "train.epochs=2")
    assert (result.steps, result.ended_by) == (10, "epochs")
    assert "train.steps: 500 will not be reached, train.epochs = 2 ends after step 10" in text
    line = (
        "ended after 10 steps, at the end of epoch 2, as train.epochs says; train.steps = 500 was not reached"
    )
    assert line in text
    assert line in page


def test_a_run_that_goes_on_has_not_ended(tmp_path):
    ended(tmp_path / "run", "train.steps=3")
    metrics = tmp_path / "run" / "metrics.jsonl"
    with metrics.open("a") as file:
        file.write('{"kind": "train", "step": 4, "loss": 0.5}\n')
    assert "ended after" not in render(read_any(tmp_path / "run"))


def test_a_finished_run_that_is_resumed_says_that_nothing_was_left(tmp_path):
    ended(tmp_path / "run", "train.steps=3")
    result, text, _ = ended(tmp_path / "run", "train.steps=3", resume=True)
    assert (result.steps, result.ended_by) == (3, "steps")
    assert "nothing to train: the checkpoint is of step 3" in text
