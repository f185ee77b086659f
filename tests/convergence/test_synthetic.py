"""Training over the bounded exchange ends where exact training ends."""

from __future__ import annotations

import pytest

from laconic.config import parse
from laconic.data import open_source
from laconic.train.metrics import evaluate
from laconic.train.ranks import Ranks
from laconic.train.settings import RunSettings
from laconic.train.trainer import Trainer
from tests.distributed.ranks import run_ranks

SETTINGS = """
[data]
kind = "synthetic"
rows = [2000, 1000, 500, 200, 100, 50, 20, 5]
samples = 20_000
eval_samples = 10_000
dense = 8

[model]
dim = 8
bottom = [32]
top = [32]

[embeddings]
lr = 0.05

[train]
batch = 128
"""


def _aucs(rank, ranks, kinds):
    found = {}
    for kind in kinds:
        settings = parse(SETTINGS, RunSettings, (f"compression.rows={kind}", f"compression.gradients={kind}"))
        source = open_source(settings.data)
        trainer = Trainer(settings, source.schema, Ranks.joined())
        following = None
        batches = source.batches("train", global_batch=settings.train.batch * ranks, rank=rank, ranks=ranks)
        samples = next(batches)
        while samples is not None:
            following = next(batches, None)
            trainer.step(samples, None if following is None else following.lookups)
            samples = following
        figures = evaluate(trainer, source, batch=4096)
        found[kind] = (figures.auc, trainer.embeddings.report().ratio)
    return found


def test_the_bounded_exchange_trains_as_well_as_the_exact_one():
    first, second = run_ranks(2, _aucs, ("exact", "bounded"))
    assert {kind: auc for kind, (auc, _) in first.items()} == {kind: auc for kind, (auc, _) in second.items()}
    (exact, _), (bounded, ratio) = first["exact"], first["bounded"]
    assert exact > 0.73
    assert bounded == pytest.approx(exact, abs=0.005)
    assert ratio > 3.5
