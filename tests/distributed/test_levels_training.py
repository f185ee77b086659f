"""Dense gradients that hold nothing back: checkpoints have no file of it, and resume to the bit."""

from __future__ import annotations

import json

import pytest

from laconic.train.checkpoint_files import write_file
from tests.distributed.training import train, write_settings
from tests.train.test_checkpoint import assert_same_checkpoint, checkpoint

STEPS, AT = 4, 2


def run(folder, *how):
    """Train on two ranks; the warm-up ends after the stop, so a resumed run must know its step."""
    settings = write_settings(folder, samples=16 * 2 * STEPS)
    always = ("compression.dense=levels", f"compression.warmup={AT + 1}", "train.eval_every=0")
    train(2, folder / "ranks", str(settings), *(word for each in always for word in ("--set", each)), *how)
    return folder / "run"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the last checkpoint of an uninterrupted run."""
    return checkpoint(run(tmp_path_factory.mktemp("whole")), STEPS)


@pytest.mark.parametrize("written", ["today", "before"])
def test_a_resumed_run_is_the_uninterrupted_one(whole, tmp_path, written):
    stopped = checkpoint(run(tmp_path, "--set", f"train.steps={AT}"), AT)
    assert not list(stopped.glob("held-*.pt"))
    if written == "before":  # the step was in a file of every rank
        manifest = json.loads((stopped / "manifest.json").read_text())
        assert manifest.pop("gradient_step") == AT
        for rank in range(2):
            held = {"step": AT, "rank": rank, "ranks": 2, "memory": {}, "thresholds": {}}
            name = f"held-{rank}-of-2.pt"
            manifest["files"][name] = write_file(stopped / name, held)
        (stopped / "manifest.json").write_text(json.dumps(manifest))
    assert_same_checkpoint(whole, checkpoint(run(tmp_path, "--resume"), STEPS))
