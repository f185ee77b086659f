"""One candidate, a whole recipe, an artifact and the engine: the same logits by different ways."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from laconic.quantize.formats import (
    LayerPrecision,
    Ranges,
    Recipe,
    RowFormat,
    TablePrecision,
    observe,
    quantize_model,
)
from laconic.quantize.search.candidates import (
    LAYER_CANDIDATES,
    TABLE_CANDIDATES,
    Candidate,
    ModelPart,
    candidates,
    recipe_of,
)
from laconic.quantize.search.probe import EmulatedModel, Probe
from laconic.quantize.search.workbench import thinned
from laconic.serve import Engine
from tests.quantize.formats.models import with_precisions


@pytest.fixture(scope="module")
def probe(bench):
    return Probe(bench.trained, thinned(bench.halves.search, 700), bench.observed)


def mixed(bench):
    """A recipe with something of everything."""
    names, layers = bench.trained.features.table_names, bench.trained.shape.layer_names()
    chosen = [
        Candidate(ModelPart("table", name), precision)
        for name, precision in zip(names, TABLE_CANDIDATES[2::3], strict=False)
    ]
    return recipe_of(
        chosen
        + [
            Candidate(ModelPart("layer", name), precision)
            for name, precision in zip(layers, LAYER_CANDIDATES[1:], strict=False)
        ]
    )


def test_every_candidate_has_a_name_of_its_own():
    for precisions in (TABLE_CANDIDATES, LAYER_CANDIDATES):
        labels = [Candidate(ModelPart("table", "t"), precision).label for precision in precisions]
        assert len(set(labels)) == len(labels)
        assert labels[0] == "fp32"


def test_a_candidate_alone_is_a_recipe_with_one_choice(bench, probe):
    exact = Recipe.uniform(probe.names, bench.trained.shape.layer_names())
    for candidate in candidates(probe.names, bench.trained.shape.layer_names()):
        recipe = with_precisions(exact, **{candidate.part.name: candidate.precision})
        assert torch.equal(probe.logits_with(candidate), probe.logits(recipe)), candidate


def test_candidates_leave_no_trace(bench, probe):
    before_B = probe.exact_B.clone()
    for candidate in candidates(probe.names, bench.trained.shape.layer_names()):
        probe.logits_with(candidate)
    exact = Recipe.uniform(probe.names, bench.trained.shape.layer_names())
    assert torch.equal(probe.logits(exact), before_B)
    part = ModelPart("table", probe.names[0])
    assert torch.equal(probe.logits_with(Candidate(part, TablePrecision())), before_B)


def test_an_artifact_gives_what_its_recipe_was_measured_with(bench, probe):
    recipe = mixed(bench)
    model = EmulatedModel(quantize_model(bench.trained, recipe, bench.observed))
    emulated_B = torch.cat([model.logits(samples.dense_BF, samples.lookups) for samples in probe.batches])
    assert torch.allclose(emulated_B, probe.logits(recipe), atol=1e-5)


@pytest.mark.parametrize("kind", ["fp32", "bf16", "int8_dynamic", "int8_static"])
def test_the_engine_computes_what_is_emulated(bench, kind):
    names, layers = bench.trained.features.table_names, bench.trained.shape.layer_names()
    recipe = Recipe.uniform(
        names,
        layers,
        table=TablePrecision(format=RowFormat.INT4, ranges=Ranges.GREEDY),
        layer=LayerPrecision(kind=kind, equalized=kind.startswith("int8")),
    )
    artifact = quantize_model(bench.trained, recipe, bench.observed)
    scorer = Probe(bench.trained, thinned(bench.halves.verification, 500), bench.observed)
    engine = Engine(artifact)
    served_B = torch.cat(
        [torch.from_numpy(engine.logits(s.dense_BF.numpy(), s.lookups)) for s in scorer.batches]
    )
    # a code on the edge may round the other way: a step of one input in hundreds, and rarely
    moved_B = (served_B - scorer.logits(recipe)).abs()
    assert float(moved_B.median()) < 1e-5
    assert float(moved_B.max()) < 0.05 * float(scorer.exact_B.std())


def test_a_cross_network_is_probed_alike(bench):
    shape = bench.trained.shape.model_copy(update={"kind": "dcn_v2", "cross": 2})
    torch.manual_seed(3)
    trained = replace(bench.trained, shape=shape, state=shape.build().state_dict())
    batches = thinned(bench.halves.search, 300)
    observed = observe(trained, [(samples.dense_BF, samples.lookups) for samples in batches])
    probe = Probe(trained, batches, observed)
    exact = Recipe.uniform(probe.names, shape.layer_names())
    assert {name.split(".")[0] for name in shape.layer_names()} == {"bottom", "cross", "deep", "logit"}
    for name in shape.layer_names():
        candidate = Candidate(ModelPart("layer", name), LayerPrecision(kind="int8_static", equalized=True))
        changed_B = probe.logits_with(candidate)
        assert torch.equal(changed_B, probe.logits(with_precisions(exact, **{name: candidate.precision})))
        assert not torch.equal(changed_B, probe.exact_B)
    engine = Engine(quantize_model(trained, exact))
    served_B = torch.cat([torch.from_numpy(engine.logits(s.dense_BF.numpy(), s.lookups)) for s in batches])
    assert torch.allclose(served_B, probe.exact_B, rtol=1e-4, atol=1e-4)
