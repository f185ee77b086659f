"""A DLRM that is split among workers, with thresholds on what they send each other; in one process.

An epoch is trained with batches of 1,024 and dimension 16. Embeddings are exact, so that only the split differs:

======== =====================================================================================
stages   worker 1 has embeddings, bottom MLP, interaction and the first layer of the top MLP, worker 2 the
         rest; of three, worker 2 has the second layer of the top MLP and worker 3 what follows
neurons  every worker has an equal share of the neurons of every layer and gets the others' activations;
         embeddings, interaction and logit are on the first
======== =====================================================================================

Rows are means over pairs, a split run against the plain one of the same seed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from rich.console import Group, RenderableType

from benchmarks.data_sets import data_sets, in_processes, run_settings
from benchmarks.results import grouped, standard_error, table_of
from laconic.adapt.settings import ExchangeSettings
from laconic.codecs.threshold import Threshold, ThresholdMethod
from laconic.data import DataSettings, open_source
from laconic.errors import ConfigError
from laconic.models import DLRM, Model
from laconic.nn import LocalDividedMlp, LocalSplit, SplitLayer
from laconic.train.metrics import evaluate
from laconic.train.ranks import Ranks
from laconic.train.settings import ModelSettings
from laconic.train.trainer import Trainer

DROPPED = (0.75, 0.9, 0.95, 0.98)
"""The levels of the paper's tables."""
_MODEL = ModelSettings(dim=16, bottom=(64,), top=(256, 128))
_BATCH = 1024

Form = Literal["stages", "neurons"]


def split_model(model: Model, form: Form, workers: int, threshold: Threshold) -> list[LocalSplit]:
    """Put splits into a DLRM, whose parameters stay what they are; return them."""
    assert isinstance(model, DLRM), "the benchmark trains DLRMs"
    layers = len(model.top) // 2
    if workers < 2 or (form == "stages" and workers > layers + 1):
        raise ConfigError(f"workers: expected 2 to {layers + 1}, got {workers!r}")
    if form == "stages":
        for k in reversed(range(workers - 1)):
            model.top.insert(2 * k + 2, SplitLayer(threshold=threshold, name=f"top.{k}"))
    else:
        bottom = LocalDividedMlp(model.bottom, workers, shared_input=True, threshold=threshold, name="bottom")
        top = LocalDividedMlp(model.top, workers, threshold=threshold, name="top")
        model.bottom, model.top = bottom, top  # type: ignore[assignment]
    return [module for module in model.modules() if isinstance(module, LocalSplit)]


@dataclass(frozen=True, slots=True)
class SplitCase:
    """How the model is split."""

    name: str
    form: Form
    workers: int
    threshold: Threshold | None
    """None: not at all."""


PLAIN = SplitCase("plain", "stages", 1, None)


@dataclass(frozen=True, slots=True)
class SplitTrial:
    """What to train; a value that another process can be handed."""

    data_name: str
    data: DataSettings
    case: SplitCase
    seed: int


@dataclass(frozen=True, slots=True)
class SplitOutcome:
    """How it ended."""

    trial: SplitTrial
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


def run_trial(trial: SplitTrial) -> SplitOutcome:
    """Train one epoch and evaluate, with the split as in training."""
    torch.set_num_threads(1)
    source, exact = open_source(trial.data), ExchangeSettings(kind="exact")
    settings = run_settings(trial.data_name, trial.data, _MODEL, exact, batch=_BATCH, seed=trial.seed)
    trainer = Trainer(settings, source.schema, Ranks(0, 1))
    case, splits = trial.case, list[LocalSplit]()
    if case.threshold is not None:
        splits = split_model(trainer.model, case.form, case.workers, case.threshold)
    for samples in source.batches("train", global_batch=_BATCH, rank=0, ranks=1, epoch=trial.seed):
        trainer.step(samples)
    evaluation = evaluate(trainer, source, batch=4096)
    sent = {
        direction: sum(split.ledger.accounts[direction].sent for split in splits)
        for direction in ("ids", "forward", "backward")
    }
    return SplitOutcome(
        trial,
        evaluation.log_loss,
        evaluation.auc,
        sum(split.kept for split in splits) / max(sum(split.entries for split in splits), 1),
        sum(account.before for split in splits for account in split.ledger.accounts.values()),
        sent["ids"],
        sent["forward"],
        sent["backward"],
    )


def paper_cases(form: Form) -> list[SplitCase]:
    """Return the paper's levels for two and three workers, by both methods; values travel as float32."""
    return [
        SplitCase(f"{dropped:.0%} {method}", form, workers, _paper_threshold(dropped, method))
        for workers in (2, 3)
        for method in get_args(ThresholdMethod)
        for dropped in DROPPED
    ]


def _paper_threshold(dropped: float, method: ThresholdMethod) -> Threshold:
    return Threshold(1 - dropped, method=method, values=None, gradients=None)


def default_cases() -> list[SplitCase]:
    """Return Laconic's defaults in both forms, for two and three workers."""
    return [SplitCase("default", form, workers, Threshold()) for form in get_args(Form) for workers in (2, 3)]


def run_thresholding_benchmark(
    *,
    data: Path,
    sets: Sequence[str] | None,
    cases: Sequence[SplitCase],
    seeds: int,
    processes: int,
    say: Callable[[SplitOutcome], None],
) -> list[SplitOutcome]:
    """Train every case and the plain model for every seed, once through each data set."""
    with data_sets(data) as found:
        trials = [
            SplitTrial(name, found[name], case, seed)
            for seed in range(seeds)
            for name in (sets or found)
            for case in (PLAIN, *cases)
        ]
        outcomes = []
        for outcome in in_processes(run_trial, trials, processes):
            say(outcome)
            outcomes.append(outcome)
    return outcomes


@dataclass(frozen=True, slots=True)
class SplitRow:
    """One case on one data set."""

    data: str
    case: str
    form: str
    workers: int
    pairs: int
    log_loss: float
    loss_change: float
    """Mean of (loss / plain loss - 1) over pairs."""
    loss_change_se: float | None
    """Its standard error; None for one pair."""
    auc_change: float
    kept: float
    ratio: float


def rows_of(outcomes: Sequence[SplitOutcome]) -> list[SplitRow]:
    """Pair outcomes with plain ones of the same data and seed; those without are left out."""
    plain = {(o.trial.data_name, o.trial.seed): o for o in outcomes if o.trial.case == PLAIN}
    pairs = [
        (o, plain[o.trial.data_name, o.trial.seed])
        for o in outcomes
        if (o.trial.data_name, o.trial.seed) in plain and o.trial.case != PLAIN
    ]
    return [_row(here) for here in grouped(pairs, lambda pair: _setting(pair[0])).values()]


def _setting(outcome: SplitOutcome) -> tuple[str, str, str, int]:
    case = outcome.trial.case
    return outcome.trial.data_name, case.name, case.form, case.workers


def _row(pairs: list[tuple[SplitOutcome, SplitOutcome]]) -> SplitRow:
    changes = [ours.log_loss / theirs.log_loss - 1 for ours, theirs in pairs]
    return SplitRow(
        *_setting(pairs[0][0]),
        pairs=len(pairs),
        log_loss=statistics.fmean(ours.log_loss for ours, _ in pairs),
        loss_change=statistics.fmean(changes),
        loss_change_se=standard_error(changes),
        auc_change=statistics.fmean(ours.auc - theirs.auc for ours, theirs in pairs),
        kept=statistics.fmean(ours.kept for ours, _ in pairs),
        ratio=statistics.harmonic_mean([ours.ratio for ours, _ in pairs]),
    )


def render(rows: Sequence[SplitRow]) -> RenderableType:
    """One table for each data set, form and number of workers."""
    return Group(
        *(
            table_of(
                f"{data}: {form}, {workers} workers, {here[0].pairs} pairs",
                here,
                ("dropped", lambda row: row.case),
                ("kept", lambda row: f"{row.kept:.1%}"),
                ("bytes", lambda row: f"{row.ratio:.1f}x fewer"),
                ("test loss", lambda row: f"{row.log_loss:.5f}"),
                ("loss / plain - 1 (s.e.)", _change),
                ("AUC - plain", lambda row: f"{row.auc_change:+.5f}"),
            )
            for (data, form, workers), here in grouped(
                rows, lambda row: (row.data, row.form, row.workers)
            ).items()
        )
    )


def _change(row: SplitRow) -> str:
    error = "" if row.loss_change_se is None else f" ({row.loss_change_se:.3%})"
    return f"{row.loss_change:+.3%}{error}"
