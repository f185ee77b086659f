"""Dense gradients that send their large entries first, in ``laconic train``."""

from __future__ import annotations

import shutil

import pytest
import torch

from tests.distributed.training import train, write_settings
from tests.train.test_checkpoint import assert_equal, assert_same_checkpoint, checkpoint

STEPS, AT = 40, 36  # entries wait once Adagrad knows 32 gradients
KEEP = (
    "--set",
    "compression.dense={method='large', keep=0.1}",
    "--set",
    "compression.warmup=2",
    "--set",
    "train.eval_every=0",
)


def held(folder):
    return {file.name: torch.load(file, weights_only=True) for file in sorted(folder.glob("held-*.pt"))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the folder of an uninterrupted run, and its settings."""
    folder = tmp_path_factory.mktemp("whole")
    settings = write_settings(folder, samples=16 * 2 * STEPS)
    train(2, folder / "ranks", str(settings), *KEEP)
    return folder


@pytest.fixture(scope="module")
def halfway(tmp_path_factory):
    """Return the folder of a run that stopped."""
    folder = tmp_path_factory.mktemp("halfway")
    settings = write_settings(folder, samples=16 * 2 * STEPS)
    train(2, folder / "ranks", str(settings), *KEEP, "--set", f"train.steps={AT}")
    return folder


@pytest.fixture
def stopped(halfway, tmp_path):
    """Return the settings of a run of one's own that stopped there."""
    shutil.copytree(halfway / "run", tmp_path / "run")
    return str(write_settings(tmp_path, samples=16 * 2 * STEPS))


def test_gradients_wait_and_the_table_says_what_was_sent(whole):
    ends = held(checkpoint(whole / "run", STEPS))
    assert sorted(ends) == ["held-0-of-2.pt", "held-1-of-2.pt"]
    for end in ends.values():
        assert sum(values.abs().sum() for values in end["memory"].values()) > 0
        assert end["step"] == STEPS
    assert "dense" in (whole / "ranks" / "out-0").read_text()


def test_a_resumed_run_is_the_uninterrupted_one(whole, stopped, tmp_path):
    train(2, tmp_path / "ranks", stopped, *KEEP, "--resume")
    ends = [checkpoint(folder / "run", STEPS) for folder in (whole, tmp_path)]
    assert_same_checkpoint(*ends)
    assert_equal(held(ends[0]), held(ends[1]))


@pytest.mark.parametrize("ranks", [1, 3])
def test_another_number_of_ranks_goes_on_with_what_was_held_back(stopped, tmp_path, ranks):
    before = held(checkpoint(tmp_path / "run", AT))
    train(ranks, tmp_path / "ranks", stopped, *KEEP, "--resume", "--set", f"train.steps={AT + 1}")
    after = held(checkpoint(tmp_path / "run", AT + 1))
    assert len(before) == 2
    assert len(after) == (3 if ranks == 3 else 0)
