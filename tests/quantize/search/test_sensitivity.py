"""Measurements that survive an interrupt."""

from __future__ import annotations

import pytest

from laconic.errors import ConfigError
from laconic.quantize.search.candidates import candidates
from laconic.quantize.search.probe import Probe
from laconic.quantize.search.sensitivity import MeasurementFile, measure_candidates, stored_bytes
from laconic.quantize.search.workbench import thinned
from tests.quantize.formats.models import with_precisions


@pytest.fixture(scope="module")
def probe(bench):
    return Probe(bench.trained, thinned(bench.halves.search, 400), bench.observed)


def measured(probe, path, of="this", stop_after=None, **options):
    """Measure all, or until an interrupt; returns parts, and candidates that were measured now."""
    fresh = []

    def latency(candidate):
        if len(fresh) == stop_after:
            raise KeyboardInterrupt
        fresh.append(candidate)
        return float(len(candidate.label))

    return measure_candidates(probe, latency, MeasurementFile(path, of, **options)), fresh


def test_an_interrupted_search_goes_on_where_it_was(probe, tmp_path):
    whole, every = measured(probe, tmp_path / "whole.jsonl")
    with pytest.raises(KeyboardInterrupt):
        measured(probe, tmp_path / "some.jsonl", stop_after=7)
    resumed, rest = measured(probe, tmp_path / "some.jsonl")
    assert rest == every[7:]
    assert resumed == whole
    again, none = measured(probe, tmp_path / "some.jsonl")
    assert (again, none) == (whole, [])


def test_a_line_that_was_cut_short_is_measured_again(probe, tmp_path):
    path = tmp_path / "m.jsonl"
    whole, every = measured(probe, path)
    path.write_bytes(path.read_bytes()[:-20])
    again, fresh = measured(probe, path)
    assert (again, fresh) == (whole, every[-1:])


def test_measurements_of_something_else_are_not_taken(probe, tmp_path):
    path = tmp_path / "m.jsonl"
    _, every = measured(probe, path)
    assert MeasurementFile(path, "that").forgotten == len(every)
    assert len(MeasurementFile(path, "that")) == 0


def test_a_fresh_start_forgets(probe, tmp_path):
    path = tmp_path / "m.jsonl"
    _, every = measured(probe, path)
    assert len(MeasurementFile(path, "this")) == len(every)
    assert len(MeasurementFile(path, "this", fresh=True)) == 0


def test_a_file_of_somebody_else_is_refused_and_stays(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("my thesis\n")
    with pytest.raises(ConfigError, match="expected measurements of laconic quantize, got 'my thesis'"):
        MeasurementFile(path, "this")
    assert path.read_text() == "my thesis\n"


def test_bytes_are_those_of_the_artifact(bench):
    from laconic.quantize.formats import Recipe, quantize_model

    trained = bench.trained
    for candidate in candidates(trained.features.table_names, trained.shape.layer_names()):
        if candidate.part.name not in ("c1", "top.0"):
            continue
        recipe = Recipe.uniform(trained.features.table_names, trained.shape.layer_names())
        recipe = with_precisions(recipe, **{candidate.part.name: candidate.precision})
        artifact = quantize_model(trained, recipe, bench.observed)
        if candidate.part.kind == "table":
            assert artifact.tables[candidate.part.name].numel() == stored_bytes(trained, candidate)
        else:
            parts = artifact.layers[candidate.part.name].values()
            assert sum(p.numel() * p.element_size() for p in parts) == stored_bytes(trained, candidate)
