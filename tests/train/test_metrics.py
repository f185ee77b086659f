"""The window of a progress bar."""

from __future__ import annotations

import math

import pytest
import torch

from laconic.errors import ConfigError
from laconic.train.metrics import Window


def test_a_window_forgets_what_is_older():
    window = Window(batches=2)
    window.add(torch.tensor(100.0), torch.tensor([0.0, 1.0]), torch.tensor([1, 0]))
    window.add(torch.tensor(4.0), torch.tensor([0.0]), torch.tensor([0]))
    window.add(torch.tensor(1.0), torch.tensor([1.0, 2.0]), torch.tensor([1, 1]))
    assert window.loss == 2
    assert window.auc == 1


def test_a_window_passes_over_empty_batches():
    window = Window(batches=1)
    window.add(torch.tensor(3.0), torch.tensor([0.0, 0.0]), torch.tensor([0, 1]))
    window.add(torch.tensor(math.nan), torch.empty(0), torch.empty(0))
    assert window.loss == 3
    assert window.auc == 0.5


def test_a_new_window_knows_nothing():
    assert math.isnan(Window().loss)
    assert math.isnan(Window().auc)


def test_a_window_of_a_diverged_run_still_answers():
    window = Window()
    window.add(torch.tensor(math.nan), torch.tensor([math.nan]), torch.tensor([1]))
    assert math.isnan(window.loss)
    assert math.isnan(window.auc)


def test_a_window_needs_a_batch():
    with pytest.raises(ConfigError, match=r"window\.batches: expected a number >= 1, got 0"):
        Window(batches=0)
