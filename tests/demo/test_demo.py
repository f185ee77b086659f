"""What the demonstration makes of several seeds, and of what its ranks note."""

from __future__ import annotations

import json

import pytest

from laconic.demo import rank, run
from laconic.demo.measure import RunFigures
from laconic.errors import CommError


def figures(auc, seconds):
    point = {"step": 25, "seconds": seconds, "samples": 100, "loss": 0.5, "auc": auc}
    return RunFigures(method="plain", round_ms=((10.0,),), auc=auc, log_loss=0.5, curve=(point,))


def test_accuracy_is_the_mean_of_all_seeds_and_time_that_of_the_first():
    timing = {name: figures(None, 0.0) for name in ("alone", "plain")}
    method = run._method("plain", timing, [figures(0.7, 3.0), figures(0.8, 1.0)])
    [point] = method["curve"]
    assert (method["name"], method["seed_auc"]) == ("plain", [0.7, 0.8])
    assert method["auc"] == point["auc"] == pytest.approx(0.75)
    assert point["seconds"] == 3.0


def test_the_bounds_that_are_used_are_named():
    compression = rank.run_settings("laconic", 2, 0).compression
    assert f"rows within {compression.rows.bound:g} of" in rank.what_laconic_sends()
    assert f"gradients of rows within {compression.gradients.bound:g} of" in rank.what_laconic_sends()


def test_lines_come_as_they_are_written_and_the_last_one_too(tmp_path):
    file = tmp_path / "events"
    file.touch()
    left = [{"doing": "first"}, {"doing": "second"}]

    def runs():
        if left:
            with file.open("a") as lines:
                lines.write(json.dumps(left.pop(0)) + "\n")
        return bool(left)

    assert [event["doing"] for event in run._follow(file, runs)] == ["first", "second"]


@pytest.mark.usefixtures("machine")
def test_a_host_that_fails_is_an_error_with_its_words(monkeypatch):
    program = """import sys; open(sys.argv[1], "a").write('{"doing": "much"}\\n'); sys.exit("planted")"""
    monkeypatch.setattr(run, "_PROGRAM", ("-c", program))
    with run._ranks_in_lab(2) as events, pytest.raises(CommError, match="planted"):
        assert {event["doing"] for event in events} == {"much"}
