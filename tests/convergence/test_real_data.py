"""On real click data, training over the bounded exchange ends where exact training ends."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest

from laconic.config import parse
from laconic.data import open_source
from laconic.train.metrics import Predictions
from laconic.train.ranks import Ranks
from laconic.train.settings import RunSettings
from laconic.train.trainer import Trainer
from tests.distributed.ranks import run_ranks

ROOT = Path(__file__).parents[2]
REAL = Path(os.environ.get("LACONIC_TEST_DATA", ROOT.parent / "shared" / "data"))

SETTINGS = """
[data]
kind = "parquet"
path = "{data}"
columns = "{columns}"

[model]
dim = 8
bottom = [32]
top = [64]

[train]
batch = 1024
"""


def _train(rank, ranks, text, steps):
    found = {}
    source = open_source(parse(text, RunSettings).data)
    for kind in ("exact", "bounded"):
        settings = parse(text, RunSettings, (f"exchange.kind={kind}",))
        trainer = Trainer(settings, source.schema, Ranks(rank, ranks))
        batches = source.batches("train", global_batch=settings.train.batch * ranks, rank=rank, ranks=ranks)
        for _, samples in zip(range(steps), batches, strict=False):
            trainer.step(samples)
        found[kind] = (_evaluate(trainer, source), trainer.embeddings.ledger.ratio)
    return found


def _evaluate(trainer, source):
    """AUC on the first held-out samples: both ways of training are judged by the same ones."""
    ranks, predictions = trainer.ranks, Predictions()
    parts = source.batches("eval", global_batch=8192 * ranks.count, rank=ranks.rank, ranks=ranks.count)
    for samples in islice(parts, 4):
        predictions.add(trainer.predict(samples), samples.label_B)
    return Predictions.merged(ranks.gather(predictions)).evaluate().auc


@pytest.mark.parametrize(("name", "least"), [("book_crossing", 0.76), ("complete_journey", 0.90)])
def test_the_bounded_exchange_learns_as_much_from_real_data(name, least):
    data = REAL / f"{name}.parquet"
    if not data.exists():
        pytest.skip(f"no {data}; set LACONIC_TEST_DATA to the folder of the real sets")
    text = SETTINGS.format(data=data, columns=ROOT / "examples" / f"{name}.toml")
    found = run_ranks(2, _train, text, 150)[0]
    (exact, _), (bounded, ratio) = found["exact"], found["bounded"]
    assert exact > least
    assert bounded == pytest.approx(exact, abs=0.005)  # 2.5 times the deviation between seeds
    assert ratio > 4
