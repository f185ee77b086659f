"""One epoch of a split DLRM: batches of 1,024, dimension 16, embeddings exact, so that only the split differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.data_sets import recipe_for
from benchmarks.thresholding.forms import Form, split_model
from laconic.adapt.settings import ExchangeSettings
from laconic.codecs.threshold import Threshold
from laconic.data import DataSettings, open_source
from laconic.nn import RehearsedSplit
from laconic.train.evaluation import evaluate
from laconic.train.ranks import Ranks
from laconic.train.settings import DenseSettings, EmbeddingSettings, ModelSettings, RunSettings, TrainSettings
from laconic.train.trainer import Trainer

__all__ = ["PLAIN", "Case", "Outcome", "Trial", "run_trial"]

_MODEL = ModelSettings(dim=16, bottom=(64,), top=(256, 128))
_BATCH = 1024


@dataclass(frozen=True, slots=True)
class Case:
    """How the model is split."""

    name: str
    form: Form
    workers: int
    threshold: Threshold | None
    """None: not at all."""


PLAIN = Case("plain", "stages", 1, None)


@dataclass(frozen=True, slots=True)
class Trial:
    """What to train; a value that another process can be handed."""

    data_name: str
    data: DataSettings
    case: Case
    seed: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended."""

    trial: Trial
    log_loss: float
    auc: float
    kept: float
    """Share of the entries at splits that traveled."""
    bytes_before: int
    """Of float32 at the splits, both directions."""
    bytes_mask: int
    bytes_forward: int
    bytes_backward: int

    @property
    def ratio(self) -> float:
        """Bytes before over bytes sent: masks, values and headers, both directions; 1 without a split."""
        sent = self.bytes_mask + self.bytes_forward + self.bytes_backward
        return self.bytes_before / sent if sent else 1.0

    def as_json(self) -> dict[str, Any]:
        """Return what a result file holds."""
        case = self.trial.case
        figures = {name: getattr(self, name) for name in self.__slots__ if name != "trial"}
        who = {
            "case": case.name,
            "form": case.form,
            "workers": case.workers,
            "threshold": repr(case.threshold),
        }
        return {"data": self.trial.data_name, "seed": self.trial.seed, **who, **figures, "ratio": self.ratio}


def run_trial(trial: Trial) -> Outcome:
    """Train one epoch and evaluate, with the split as in training."""
    torch.set_num_threads(1)
    source, recipe = open_source(trial.data), recipe_for(trial.data_name)
    settings = RunSettings(
        data=trial.data,
        model=_MODEL,
        embeddings=EmbeddingSettings(rate=recipe.rows),
        dense=DenseSettings(rate=recipe.dense),
        exchange=ExchangeSettings(kind="exact"),
        train=TrainSettings(batch=_BATCH, seed=trial.seed, rate_warmup=recipe.warmup),
    )
    trainer = Trainer(settings, source.schema, Ranks(0, 1))
    case, splits = trial.case, list[RehearsedSplit]()
    if case.threshold is not None:
        splits = split_model(trainer.model, case.form, case.workers, case.threshold)
    for samples in source.batches("train", global_batch=_BATCH, rank=0, ranks=1, epoch=trial.seed):
        trainer.step(samples)
    evaluation = evaluate(trainer, source, batch=4096)
    sent = {
        direction: sum(split.ledger.accounts[direction].sent for split in splits)
        for direction in ("ids", "forward", "backward")
    }
    return Outcome(
        trial,
        evaluation.log_loss,
        evaluation.auc,
        sum(split.kept for split in splits) / max(sum(split.entries for split in splits), 1),
        sum(account.before for split in splits for account in split.ledger.accounts.values()),
        sent["ids"],
        sent["forward"],
        sent["backward"],
    )
