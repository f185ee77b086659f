"""Evaluation over all ranks: exact communication, exact figures."""

from __future__ import annotations

from laconic.data import Source
from laconic.train.metrics import Evaluation, Predictions
from laconic.train.ranks import Ranks
from laconic.train.trainer import Trainer

__all__ = ["evaluate"]


def evaluate(trainer: Trainer, source: Source, *, batch: int) -> Evaluation:
    """Score the evaluation samples; every rank gets the same figures."""
    ranks: Ranks = trainer.ranks
    trainer.embeddings.synchronize()  # ranks whose copies differ would not evaluate one model
    predictions = Predictions()
    parts = source.batches("eval", global_batch=batch * ranks.count, rank=ranks.rank, ranks=ranks.count)
    for samples in parts:
        predictions.add(trainer.predict(samples), samples.label_B)
    merged = Predictions.merged(ranks.gather(predictions))
    return merged.evaluate()
