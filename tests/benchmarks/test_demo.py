"""What the demonstration makes of several seeds."""

from __future__ import annotations

import pytest

from benchmarks.training import demo
from benchmarks.training.jobs import Answer
from benchmarks.training.methods import FINE_GRADIENT_BOUND, FINE_ROW_BOUND


def answer(auc, seconds):
    point = {"step": 25, "seconds": seconds, "samples": 100, "loss": 0.5, "auc": auc}
    return Answer(method="plain_pairwise", round_ms=((10.0,),), auc=auc, log_loss=0.5, curve=(point,))


def test_accuracy_is_the_mean_of_all_seeds_and_time_that_of_the_first():
    timing = {name: answer(None, 0.0) for name in ("alone", "plain_pairwise")}
    method = demo._method("plain_pairwise", timing, [answer(0.7, 3.0), answer(0.8, 1.0)])
    [point] = method["curve"]
    assert (method["name"], method["seed_auc"]) == ("plain", [0.7, 0.8])
    assert method["auc"] == point["auc"] == pytest.approx(0.75)
    assert point["seconds"] == 3.0


def test_the_bounds_that_are_used_are_named():
    assert f"rows within {FINE_ROW_BOUND:g} of" in demo._sent()
    assert f"gradients of rows within {FINE_GRADIENT_BOUND:g} of" in demo._sent()
