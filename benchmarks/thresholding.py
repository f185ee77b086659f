"""``python -m benchmarks.thresholding --data DIR``: DCT-MP, thresholds at a split, on real data.

It measures what thresholds on the values that workers send each other cost in accuracy and save in
bytes. A DLRM is split among workers, rehearsed in one process, and trained for an epoch with
batches of 1,024 and dimension 16. Embeddings are exact, so that only the split differs:

======== ==========================================================================================
stages   Worker 1 has embeddings, bottom MLP, interaction and the first layer of the top MLP, worker
         2 the rest. Of three workers, worker 2 has the second layer of the top MLP and worker 3
         what follows.
neurons  Every worker has an equal share of the neurons of every layer and receives the others'
         activations. Embeddings, interaction and logit are on the first.
======== ==========================================================================================

Figures are means over pairs: a split run against the plain one of the same seed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from rich.console import Console, Group, RenderableType
from rich.table import Table

from benchmarks.harness import (
    append_line,
    data_parser,
    data_sets,
    grouped,
    in_processes,
    mean_text,
    print_wide,
    run_settings,
    table_of,
)
from laconic.adapt.settings import CompressionSettings
from laconic.codecs.threshold import Threshold, ThresholdMethod
from laconic.data import DataSettings, open_source
from laconic.errors import ConfigError
from laconic.machine import cores
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
    """Threshold at the splits; None: the model is not split."""


PLAIN = SplitCase("plain", "stages", 1, None)


@dataclass(frozen=True, slots=True)
class SplitTrial:
    """One run to train; other processes can take it."""

    data_name: str
    data: DataSettings
    case: SplitCase
    seed: int


@dataclass(frozen=True, slots=True)
class SplitOutcome:
    """Accuracy and bytes of one trial."""

    trial: SplitTrial
    log_loss: float
    auc: float
    kept: float
    """Share of the entries at splits that traveled."""
    bytes_before: int
    """Bytes of float32 values at the splits, in both directions."""
    bytes_mask: int
    bytes_forward: int
    bytes_backward: int

    @property
    def ratio(self) -> float:
        """Bytes before over bytes sent, with masks and headers; 1 without a split."""
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


Pair = tuple[SplitOutcome, SplitOutcome]
"""A split run, and the plain one of the same data and seed."""


def run_trial(trial: SplitTrial) -> SplitOutcome:
    """Train one epoch and evaluate, with the split as in training."""
    torch.set_num_threads(1)
    source = open_source(trial.data)
    exact = CompressionSettings.model_validate({"rows": "exact", "gradients": "exact"})
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
    """Return the paper's levels for two and three workers by both methods, as float32."""
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


def pairs_of(outcomes: Sequence[SplitOutcome]) -> dict[tuple[str, str, int, str], list[Pair]]:
    """Pair outcomes with plain ones of the same data and seed, by setting; others are left out."""
    plain = {(o.trial.data_name, o.trial.seed): o for o in outcomes if o.trial.case == PLAIN}
    pairs = [
        (o, plain[o.trial.data_name, o.trial.seed])
        for o in outcomes
        if (o.trial.data_name, o.trial.seed) in plain and o.trial.case != PLAIN
    ]
    return grouped(pairs, lambda pair: (*_setting(pair[0]), pair[0].trial.case.name))


def _setting(outcome: SplitOutcome) -> tuple[str, str, int]:
    return outcome.trial.data_name, outcome.trial.case.form, outcome.trial.case.workers


def loss_changes(pairs: Sequence[Pair]) -> list[float]:
    """Return loss / plain loss - 1 of every pair."""
    return [ours.log_loss / plain.log_loss - 1 for ours, plain in pairs]


def render(outcomes: Sequence[SplitOutcome]) -> RenderableType:
    """Make one table for each data set, form and number of workers."""
    cases = grouped(pairs_of(outcomes).values(), lambda pairs: _setting(pairs[0][0]))
    return Group(*(_table(setting, here) for setting, here in cases.items()))


def _table(setting: tuple[str, str, int], cases: Sequence[Sequence[Pair]]) -> Table:
    def mean(figure: Callable[[SplitOutcome, SplitOutcome], float]) -> Callable[[Sequence[Pair]], float]:
        return lambda pairs: statistics.fmean(figure(ours, plain) for ours, plain in pairs)

    kept = mean(lambda ours, _: ours.kept)
    log_loss = mean(lambda ours, _: ours.log_loss)
    auc_change = mean(lambda ours, plain: ours.auc - plain.auc)
    data, form, workers = setting
    return table_of(
        f"{data}: {form}, {workers} workers, {len(cases[0])} pairs",
        cases,
        ("dropped", lambda pairs: pairs[0][0].trial.case.name),
        ("kept", lambda pairs: f"{kept(pairs):.1%}"),
        ("bytes", lambda pairs: f"{statistics.harmonic_mean([o.ratio for o, _ in pairs]):.1f}x fewer"),
        ("test loss", lambda pairs: f"{log_loss(pairs):.5f}"),
        ("loss / plain - 1 (s.e.)", lambda pairs: mean_text(loss_changes(pairs), "+.3%", ".3%")),
        ("AUC - plain", lambda pairs: f"{auc_change(pairs):+.5f}"),
    )


def main() -> None:
    """Run what the arguments say; every outcome is a line of ``--json`` as soon as it is there."""
    parser = data_parser("python -m benchmarks.thresholding")
    parser.add_argument("--cases", choices=("paper", "default"), default="default")
    parser.add_argument(
        "--form", choices=("stages", "neurons"), default="neurons", help="of the paper's cases"
    )
    parser.add_argument("--processes", type=int, default=cores())
    given = parser.parse_args()
    cases = paper_cases(given.form) if given.cases == "paper" else default_cases()
    console, outcomes = Console(stderr=True), []
    with data_sets(given.data) as found:
        trials = [
            SplitTrial(name, found[name], case, seed)
            for seed in range(given.seeds)
            for name in (given.sets or found)
            for case in (PLAIN, *cases)
        ]
        for outcome in in_processes(run_trial, trials, given.processes):
            line = outcome.as_json()
            where = f"{line['data']}, seed {line['seed']}, {line['workers']} workers, {line['case']}"
            console.print(f"{where}: {line['log_loss']:.5f}")
            append_line(given.json, line)
            outcomes.append(outcome)
    print_wide(render(outcomes))


if __name__ == "__main__":
    main()
