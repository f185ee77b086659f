"""One epoch in rehearsal under one policy: four ranks, batches of 1,024, dimension 16."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import torch

from benchmarks.data_sets import recipe_for
from benchmarks.training.methods import find_method
from laconic.adapt.adaptive import AdaptivePolicy, make_adaptive_policy
from laconic.adapt.evidence import Adaptation
from laconic.adapt.settings import ExchangeSettings
from laconic.data import DataSettings, Samples, Source, open_source
from laconic.exchange import Layout
from laconic.exchange.exchange_plan import Policy
from laconic.train.evaluation import evaluate
from laconic.train.ranks import Ranks
from laconic.train.settings import DenseSettings, EmbeddingSettings, ModelSettings, RunSettings, TrainSettings
from laconic.train.trainer import Trainer

__all__ = ["MODEL", "RANKS", "Outcome", "Trial", "run_trial", "settings_for"]

RANKS = 4
MODEL = ModelSettings(dim=16, bottom=(128, 64), top=(128, 64))
_BATCH = 1024 // RANKS


@dataclass(frozen=True, slots=True)
class Trial:
    """What to train; a value that another process can be handed."""

    name: str
    """Of the data set."""
    data: DataSettings
    policy: str
    decay: str
    exchange: ExchangeSettings | Literal["sc24"]
    """``sc24``: the paper's encoders and classes, pooled, forward only."""
    seed: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended."""

    trial: Trial
    auc: float
    log_loss: float
    ratio_forward: float
    """Bytes of plain pooled float32 rows and raw ids over those of rows and ids that were sent."""
    ratio_backward: float
    bytes_sent: float
    """Of rows, ids and gradients, by all ranks per step; reviews included."""
    decisions: int


def settings_for(name: str, data: DataSettings, exchange: ExchangeSettings, seed: int) -> RunSettings:
    """Return the settings of a run on a data set."""
    recipe = recipe_for(name)
    return RunSettings(
        data=data,
        model=MODEL,
        embeddings=EmbeddingSettings(rate=recipe.rows),
        dense=DenseSettings(rate=recipe.dense),
        exchange=exchange,
        train=TrainSettings(batch=_BATCH, seed=seed, rate_warmup=recipe.warmup),
    )


def run_trial(trial: Trial) -> Outcome:
    """Train one epoch and evaluate."""
    torch.set_num_threads(1)
    source = open_source(trial.data)
    exchange = ExchangeSettings() if trial.exchange == "sc24" else trial.exchange
    settings = settings_for(trial.name, trial.data, exchange, trial.seed)
    policy: Policy
    if trial.exchange == "sc24":
        method = find_method("sc24")
        settings = settings.model_copy(update={"embeddings": method.embeddings(settings.embeddings)})
        policy = method.policy(source.schema)
    else:
        names = [feature.name for feature in source.schema.categorical]
        policy = make_adaptive_policy(exchange, names, ranks=1)
    trainer = Trainer(settings, source.schema, Ranks(0, 1), policy, rehearsed_ranks=RANKS)
    adaptation = Adaptation(trainer, policy) if isinstance(policy, AdaptivePolicy) else None
    decisions = _train(trainer, adaptation, source, trial.seed)
    evaluation = evaluate(trainer, source, batch=4096)
    sent = {row["direction"]: row["bytes_sent"] for row in trainer.embeddings.ledger.summary()}
    steps = max(trainer.embeddings.step, 1)
    reviews = adaptation.review_bytes / steps if adaptation is not None else 0.0
    rows, ids = _plain_bytes(trainer.embeddings.layout, source, steps)
    return Outcome(
        trial,
        evaluation.auc,
        evaluation.log_loss,
        (rows + ids) / (sent["forward"] + sent["ids"] + reviews / 2),
        rows / (sent["backward"] + reviews / 2),
        sum(sent.values()) + reviews,
        decisions,
    )


def _train(trainer: Trainer, adaptation: Adaptation | None, source: Source, epoch: int) -> int:
    batches = source.batches("train", global_batch=_BATCH * RANKS, rank=0, ranks=1, epoch=epoch)
    ahead: deque[Samples] = deque()
    decisions = step = 0
    while True:
        ahead.extend(islice(batches, 9 - len(ahead)))
        if not ahead:
            return decisions
        samples = ahead.popleft()
        loss, _ = trainer.step(samples)
        step += 1
        if adaptation is not None:
            decisions += len(adaptation.after(step, float(loss), len(samples), list(ahead)))


def _plain_bytes(layout: Layout, source: Source, steps: int) -> tuple[float, float]:
    """Bytes of pooled float32 rows, and of raw ids, that all ranks send per step with whole tables on ranks."""
    lookups = source.samples_in("train") / steps * len(layout.tables)
    foreign = (layout.ranks - 1) / layout.ranks
    return lookups * foreign * MODEL.dim * 4, lookups * foreign * 8
