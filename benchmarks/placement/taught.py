"""A model that has learnt something, for all contenders to begin with.

What codecs make of rows and gradients depends on how much was learnt. Contenders take part in other numbers of steps, so
all have the state of one that trained for a while, and learn no more.
"""

from __future__ import annotations

from itertools import islice

from laconic.data import DataSettings, open_source
from laconic.nn import ShardedEmbeddings
from laconic.train.ranks import Ranks
from laconic.train.settings import ModelSettings, RunSettings
from laconic.train.trainer import Trainer

__all__ = ["NO_RATE", "copy_state", "taught"]

NO_RATE = 1e-12
"""Learning rate of those who take steps, but learn no more."""
_STEPS = 48


def taught(data: DataSettings, batch: int, model: ModelSettings) -> Trainer:
    """Train alone, on the same samples on every rank."""
    source = open_source(data)
    trainer = Trainer(RunSettings(data=data, model=model), source.schema, Ranks(0, 1))
    for samples in islice(source.batches("train", global_batch=batch, rank=0, ranks=1), _STEPS):
        trainer.step(samples)
    return trainer


def copy_state(source: Trainer, target: Trainer) -> None:
    """Give one the weights and rows of another that has whole tables; state of optimizers is left out."""
    target.model.load_state_dict(source.model.state_dict())
    for table in source.embeddings.layout.tables:
        _, whole_RD, _ = source.embeddings.table_shard(table.name)
        ids, rows_RD, _ = target.embeddings.table_shard(table.name)
        rows_RD.copy_(whole_RD[ids.start : ids.stop : ids.step])
        if isinstance(target.embeddings, ShardedEmbeddings):
            hot_ids, copies_RD, _ = target.embeddings.hot_rows(table.name)
            copies_RD.copy_(whole_RD[hot_ids])
