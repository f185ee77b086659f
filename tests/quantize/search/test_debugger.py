"""The debugger names the part, the row and the sample that hurt."""

from __future__ import annotations

import math

import torch

from laconic.quantize.formats import Recipe, RowFormat, TablePrecision, quantize_model
from laconic.quantize.search.debugger import debug
from laconic.quantize.search.run import refresh
from laconic.quantize.search.workbench import joined
from tests.quantize.formats.models import with_precisions


def exact(trained):
    return Recipe.uniform(trained.features.table_names, trained.shape.layer_names())


def quiet(*_):
    pass


def test_a_model_in_fp32_has_nothing_to_say(bench):
    artifact = quantize_model(bench.trained, exact(bench.trained))
    found = debug(bench.trained, artifact, bench.halves.search, quiet)
    assert found.harm.expected == 0
    assert found.hurt == ()
    assert all((error.sqnr_db, error.logit_rms, error.ids) == (math.inf, 0, ()) for error in found.parts)


def test_the_part_that_hurts_comes_first(bench):
    trained = bench.trained
    recipe = with_precisions(exact(trained), c1=TablePrecision(format=RowFormat.INT2))
    found = debug(trained, quantize_model(trained, recipe), bench.halves.search, quiet)
    worst, *others = found.parts
    assert (worst.part.name, worst.precision) == ("c1", "int2 minmax")
    assert 0 < worst.sqnr_db < 20
    assert 0.5 < worst.cosine < 1
    assert worst.harm.expected > 0
    assert all(error.harm.expected == 0 for error in others)
    # what is before a layer reaches it, though it is exact itself
    top = next(error for error in others if error.part.name == "top.0")
    assert top.sqnr_db == math.inf
    assert top.accumulated_db < 60
    assert all(sample.worst_table == "c1" for sample in found.hurt)


def test_a_row_that_was_damaged_is_named_with_its_samples(bench):
    trained = bench.trained
    artifact = quantize_model(trained, exact(trained))
    ids_B = joined(list(bench.halves.search)).lookups.ids_L  # of table c0 first, one for each sample
    victim = int(ids_B[0])
    artifact.tables["c0"][victim] = 0
    found = debug(trained, artifact, bench.halves.search, quiet)
    assert found.parts[0].part.name == "c0"
    (hurt,) = [hurt for hurt in found.parts[0].ids if hurt.share > 0]
    assert (hurt.id, hurt.share) == (victim, 1.0)
    assert hurt.samples == int((ids_B[: found.samples] == victim).sum())
    assert all(sample.ids["c0"] == [victim] for sample in found.hurt)
    first = found.hurt[0]
    assert abs(first.low - first.logit) == max(abs(sample.low - sample.logit) for sample in found.hurt)


def test_a_recipe_that_holds_is_applied_to_a_new_snapshot(bench):
    artifact = quantize_model(
        bench.trained, with_precisions(exact(bench.trained), c1=TablePrecision(format=RowFormat.INT8))
    )
    refreshed = refresh(bench, artifact, 0.01, quiet)
    assert refreshed.within
    assert refreshed.offenders == ()
    assert torch.equal(refreshed.artifact.tables["c1"], artifact.tables["c1"])
    assert refreshed.artifact.metrics["budget"] == 0.01
    assert refreshed.artifact.metrics["samples"] == sum(map(len, bench.halves.verification))


def test_a_recipe_that_breaks_the_budget_is_refused_with_the_part_that_does(bench):
    recipe = with_precisions(exact(bench.trained), c0=TablePrecision(format=RowFormat.INT2))
    refreshed = refresh(bench, quantize_model(bench.trained, recipe), 1e-6, quiet)
    assert not refreshed.within
    assert refreshed.offenders[0].part.name == "c0"
