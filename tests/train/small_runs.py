"""Small trainers on generated samples, alone or in rehearsal, and all that training changes in them."""

from __future__ import annotations

import copy

from laconic.adapt.adaptive import make_adaptive_policy
from laconic.config import parse
from laconic.data import open_source
from laconic.train.ranks import Ranks
from laconic.train.settings import RunSettings
from laconic.train.trainer import Trainer

SETTINGS = """
[data]
kind = "synthetic"
rows = [200, 50, 7, 1000]
bags = [1, 3, 1, 1]
samples = 2000
eval_samples = 50
dense = 4

[model]
dim = 4
bottom = [8]
top = [8]

[embeddings]
replicate_below = 10

[compression]
rows.bound = 0.05
gradients.bound = 0.7

[train]
batch = 16
"""


def settings_of(*overrides):
    return parse(SETTINGS, RunSettings, overrides=overrides)


def source_of(settings):
    return open_source(settings.data)


def policy_of(settings):
    names = [feature.name for feature in source_of(settings).schema.categorical]
    return make_adaptive_policy(settings.compression.effective(), names, ranks=1)


def trainer_of(settings, policy=None, rehearsed=None):
    """``rehearsed``: as so many ranks; None: alone."""
    schema = source_of(settings).schema
    return Trainer(settings, schema, Ranks(0, 1, rehearsed=rehearsed), policy or policy_of(settings))


def batches_of(settings, count, *, batch=64):
    parts = source_of(settings).batches("train", global_batch=batch, rank=0, ranks=1)
    return [samples for samples, _ in zip(parts, range(count), strict=False)]


def state_of(trainer):
    """Copies of rows, row states, step, model and dense optimizer."""
    shards = {table.name: trainer.rows.table_shard(table.name)[1:] for table in trainer.rows.layout.tables}
    return {
        "step": trainer.rows.step,
        "rows": {name: rows.clone() for name, (rows, _) in shards.items()},
        "states": {name: state.clone() for name, (_, state) in shards.items() if state is not None},
        "model": copy.deepcopy(trainer.model.state_dict()),
        "optimizer": copy.deepcopy(trainer.optimizer.state_dict()),
    }


def row_rate(trainer):
    """Learning rate of the next update of rows."""
    return trainer.embeddings.optimizer.lr


def dense_rates(trainer):
    return [group["lr"] for group in trainer.optimizer.param_groups]
