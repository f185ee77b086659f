"""A training run on one rank: data, trainer, checkpoints, metrics and display, wired together."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, NamedTuple

from rich.console import Console

from laconic.adapt.adaptive import AdaptivePolicy, make_adaptive_policy
from laconic.adapt.evidence import Adaptation
from laconic.adapt.guard import HarmEstimate
from laconic.data import Samples, Source, open_source
from laconic.data.odd_counts import Odd, odd_line
from laconic.errors import CommError, ConfigError
from laconic.train.checkpoint import (
    Position,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)
from laconic.train.data_identity import data_identity
from laconic.train.display import Display, MetricsFile
from laconic.train.limits import RunLimits, check_memory, check_run, warnings_of
from laconic.train.metrics import Evaluation, Window, evaluate
from laconic.train.placement import PlanCheck, make_placement, planned_compression
from laconic.train.ranks import Ranks, process_group
from laconic.train.settings import RunSettings
from laconic.train.trainer import Trainer

__all__ = ["TrainResult", "run"]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """How a run ended."""

    steps: int
    epochs: float
    """Passes over the training samples."""
    ended_by: Literal["steps", "epochs"]
    """The setting that ended it; ``epochs`` also where the data ended and neither was given."""
    seconds: float
    evaluation: Evaluation | None
    ledger: list[dict[str, float | int | str]]
    """Bytes and times of rank 0 by direction, per step."""
    tables: list[dict[str, float | int | str]]
    """Bytes of rank 0 by table and direction, in all."""
    dense_bytes: int
    """Bytes of dense gradients that rank 0 sent per step."""
    total: dict[str, float]
    """Bytes of rank 0 per step, before compression and sent: all directions, dense gradients and
    reviews."""
    rounding: dict[str, float] | None
    """What rounding is believed to have cost, as shares of the loss; None where nothing was
    rounded."""
    plan: dict[str, Any] | None
    """How far what was sent is from what the plan predicted, where one did."""
    warnings: list[str]
    """What is doubtful about the run and its data, as it was said at the start and at the end."""


def run(
    settings: RunSettings,
    *,
    resume: bool,
    console: Console | None,
    plan: Path | None = None,
) -> TrainResult:
    """Train as the settings say; the leading rank writes and shows.

    ``plan``: file that says where tables live, instead of the settings.
    """
    with process_group(settings.train.timeout_s) as ranks:
        options = {"--resume": resume, "--plan": str(plan)}
        _check_alike(ranks, {**settings.model_dump(mode="json"), **options})
        source = ranks.together(lambda: open_source(settings.data))
        made = _make(settings, source, ranks, plan)
        folder = settings.train.out / "checkpoints"
        newest = newest_checkpoint(folder)
        _check_alike(ranks, {"newest checkpoint": None if newest is None else newest.name})
        identity = ranks.together(lambda: data_identity(settings.data, source))
        position = Position()
        if newest is not None and resume:
            position = load_checkpoint(made.trainer, newest, made.policy, identity)
        elif newest is not None:
            raise ConfigError(
                f"train.out: {str(settings.train.out)!r} has checkpoints of another run; continue it with --resume, "
                "or choose another folder"
            )
        shown = console if ranks.leads else None
        return _Run(settings, source, made, position, shown, identity).train()


class _Made(NamedTuple):
    """What a run trains with."""

    trainer: Trainer
    policy: AdaptivePolicy
    check: PlanCheck


def _make(settings: RunSettings, source: Source, ranks: Ranks, plan: Path | None) -> _Made:
    """Make what a run trains with; the plan is not kept.

    Its ids of all ranks' warm rows may take as much memory as this rank's rows.
    """
    names = [feature.name for feature in source.schema.categorical]
    placement = ranks.together(lambda: make_placement(settings, source.schema, ranks.count, plan))
    if placement.plan is not None:
        _check_alike(ranks, {"plan": placement.plan.model_dump(mode="json")})
    check_memory(settings, placement, ranks)
    given = ranks.together(lambda: planned_compression(settings.compression.effective(), placement))
    _check_alike(ranks, {"compression": given.model_dump(mode="json")})
    policy = ranks.together(lambda: make_adaptive_policy(given, names, ranks.count))
    trainer = Trainer(settings, source.schema, ranks, policy, placement=placement)
    return _Made(trainer, policy, PlanCheck(placement.plan, trainer.rows.ledger, ranks))


def _check_alike(ranks: Ranks, values: dict[str, Any]) -> None:
    """Raise on every rank where one has another value: to go on would be to train another model."""
    leading, *others = (_flat(values) for values in ranks.gather(values))
    for rank, other in enumerate(others, start=1):
        for name in [*leading, *other]:
            if leading.get(name) != other.get(name):
                raise CommError(
                    f"{name}: rank 0 has {leading.get(name)!r}, rank {rank} has {other.get(name)!r}; "
                    "all ranks need the same settings, and one folder that they share"
                )


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat.update(_flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return flat


_OTHER_ORDER = (
    "data: the checkpoint was written when epochs had another order; in what is left of this one, some samples "
    "come again and others do not, and from the next epoch on every sample comes once"
)


class _Run:
    def __init__(
        self,
        settings: RunSettings,
        source: Source,
        made: _Made,
        begin: Position,
        console: Console | None,
        identity: dict[str, Any],
    ) -> None:
        self.settings, self.source, self.begin, self.identity = settings, source, begin, identity
        self.trainer, self.policy, self.check = made
        self.adaptation = Adaptation(self.trainer, self.policy)
        self.ranks: Ranks = self.trainer.ranks
        self.global_batch = settings.train.batch * self.ranks.count
        check_run(settings, source)
        self.limits = RunLimits.of(settings.train, begin, source.samples_in("train"), self.global_batch)
        self.steps = self.limits.last
        self.file = self.ranks.together(self._open_file)
        self.display = Display(console, self.steps)
        self.warnings = warnings_of(settings, source)
        if (warning := self.limits.warning()) is not None:
            self.warnings.append(warning)
        if settings.data.kind == "parquet" and begin.sample and begin.streams is None:
            self.warnings.append(_OTHER_ORDER)
        for warning in self.warnings:
            self._say_warning(warning, begin.step)

    def _say_warning(self, warning: str, step: int) -> None:
        self.display.say(f"warning: {warning}")
        if self.file is not None:
            self.file.write("warning", step, {"line": warning})

    def _open_file(self) -> MetricsFile | None:
        if not self.ranks.leads:
            return None
        settings = self.settings
        settings.train.out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(settings.model_dump(mode="json"), indent=2)
        (settings.train.out / "settings.json").write_text(text + "\n")
        return MetricsFile(settings.train.out, begin=self.begin.step, tensorboard=settings.train.tensorboard)

    def train(self) -> TrainResult:
        start = perf_counter()
        position, evaluation = self.begin, None
        try:
            for position, evaluation in self._steps(self.begin):  # noqa: B007 -- the last one counts
                pass
            self._write_end(position)
            rounding = self._estimate(position)
            if position != self.begin:
                self._save(position)
            if evaluation is None:
                evaluation = self._evaluate(position)
            if (odd := self._odd_line()) is not None:
                self.warnings.append(odd)
                self._say_warning(odd, position.step)
        finally:
            self.display.close()
            if self.file is not None:
                self.file.close()
        ledger = self.trainer.rows.ledger
        if evaluation is not None:
            self.display.evaluated(position.step, evaluation)
        dense_before, dense_sent, reviews = self._beside_the_ledger()
        self.display.ledger(ledger, dense_before, dense_sent, reviews)
        self.display.say(self.limits.line(self.begin, position))
        if rounding is not None:
            self.display.say(self._harm_line(rounding))
        found = self.check.last
        if found is not None and found.too_far:
            self.display.say(found.line())
        return TrainResult(
            position.step,
            self._epochs(position),
            self.limits.ended_by,
            perf_counter() - start,
            evaluation,
            ledger.summary(),
            ledger.rows(),
            self.trainer.dense_bytes,
            self._total(),
            None if rounding is None else rounding.as_dict(),
            None if found is None else found.as_dict(),
            self.warnings,
        )

    def _odd_line(self) -> str | None:
        """Say what values of the data all ranks replaced, if any."""
        mine = self.source.odd_values() if isinstance(self.source, Odd) else {}
        return odd_line(*self.ranks.gather(mine))

    def _estimate(self, position: Position) -> HarmEstimate | None:
        """Write down what rounding is believed to have cost, if anything was rounded."""
        harm = self.adaptation.estimate()
        if not harm.known:
            return None
        if self.file is not None and position != self.begin:
            self.file.write("rounding", position.step, {**harm.as_dict(), "line": self._harm_line(harm)})
        return harm

    def _harm_line(self, harm: HarmEstimate) -> str:
        return harm.line(None if self.policy.guard is None else self.policy.guard.budget)

    def _steps(self, position: Position) -> Iterator[tuple[Position, Evaluation | None]]:
        """Train to the end; yields the position after every step, and any evaluation."""
        settings, window, adaptation = self.settings.train, Window(), self.adaptation
        batches = self._batches(position)
        ahead: deque[tuple[Position, Samples]] = deque()
        begun, samples_seen = perf_counter(), 0
        while position.step < self.steps:
            ahead.extend(islice(batches, max(adaptation.ahead, 1) + 1 - len(ahead)))
            if not ahead:
                return
            position, samples = ahead.popleft()
            step = position.step
            evaluates = settings.eval_every and step % settings.eval_every == 0
            saves = settings.checkpoint_every and step % settings.checkpoint_every == 0 and step < self.steps
            pauses = evaluates or saves or step == self.steps or adaptation.pauses(step)
            # ids of the next batch travel during this step, unless something else comes in between
            following = ahead[0][1].lookups if ahead and not pauses else None
            loss, logits_B = self.trainer.step(samples, following)
            samples_seen += self.global_batch
            window.add(loss, logits_B, samples.label_B)
            coming = [samples for _, samples in ahead]
            for decision in adaptation.after(step, float(loss), len(samples), coming):
                self._write_down(step, decision)
            self._check_plan(step, end=step == self.steps)
            if step % settings.log_every == 0 or step == self.steps:
                self._log(step, window, samples_seen / (perf_counter() - begun))
            evaluation = self._evaluate(position) if evaluates else None
            if evaluation is not None and step < self.steps:
                self.display.evaluated(step, evaluation)
            if saves:
                self._save(position)
            yield position, evaluation

    def _beside_the_ledger(self) -> tuple[int, int, float]:
        """Return bytes per step that the ledger does not see: dense before and sent, reviews."""
        steps = max(self.trainer.rows.ledger.accounts["forward"].steps, 1)
        reviews = self.adaptation.review_bytes / steps
        return self.trainer.dense_bytes_before, self.trainer.dense_bytes, reviews

    def _total(self) -> dict[str, float]:
        before, sent, reviews = self._beside_the_ledger()
        return self.trainer.rows.ledger.total(dense_before=before, dense_sent=sent, reviews=reviews)

    def _epochs(self, position: Position) -> float:
        return position.epoch + position.sample / self.source.samples_in("train")

    def _write_end(self, position: Position) -> None:
        if self.file is not None and position != self.begin:
            values = {"ended_by": self.limits.ended_by, "epochs": self._epochs(position)}
            self.file.write("end", position.step, {**values, "line": self.limits.line(self.begin, position)})

    def _check_plan(self, step: int, *, end: bool) -> None:
        found = self.check.after(step, self.trainer.rows.ledger, end=end)
        if found is not None and self.file is not None:
            self.file.write("plan", step, found.as_dict())

    def _write_down(self, step: int, decision: dict[str, Any]) -> None:
        if self.file is not None:
            self.file.write("decision", step, {**decision, "step": step})

    def _batches(self, position: Position) -> Iterator[tuple[Position, Samples]]:
        """Batches from a position on, each with the position after it."""
        per_epoch = self.source.samples_in("train")
        step, first, streams = position.step, position.sample, position.streams
        epochs = self.limits.epochs
        for epoch in count(position.epoch) if epochs is None else range(position.epoch, epochs):
            sample = first
            streams = streams or self.source.streams("train", self.ranks.count)
            parts = self.source.batches(
                "train",
                global_batch=self.global_batch,
                rank=self.ranks.rank,
                ranks=self.ranks.count,
                epoch=epoch,
                start=first,
                streams=streams,
            )
            for samples in parts:
                step += 1
                # another number of ranks has another batch: the first ends at its next boundary
                sample = min((sample // self.global_batch + 1) * self.global_batch, per_epoch)
                yield Position(step, epoch, sample, streams), samples
            first, streams = 0, None

    def _save(self, position: Position) -> None:
        settings = self.settings.train
        self.adaptation.settle()
        folder = settings.out / "checkpoints"
        save_checkpoint(self.trainer, folder, position, settings.keep_checkpoints, self.policy, self.identity)

    def _log(self, step: int, window: Window, samples_per_s: float) -> None:
        total, auc = self._total(), window.auc
        shown = "undefined" if math.isnan(auc) else f"{auc:.4f}"
        self.display.step(
            step,
            f"loss {window.loss:.4f}  AUC {shown}  {samples_per_s:,.0f} samples/s  {total['ratio']:.1f}x less"
            + (f"  {words}" if (words := self.adaptation.summary()) else ""),
        )
        if self.file is not None:
            ledger = self.trainer.rows.ledger.summary()
            _, dense, reviews = self._beside_the_ledger()
            sent = {f"bytes_{row['direction']}": row["bytes_sent"] for row in ledger}
            values = {"loss": window.loss, "auc": auc, "samples_per_s": samples_per_s}
            self.file.write(
                "train", step, {**values, **total, **sent, "bytes_dense": dense, "bytes_reviews": reviews}
            )

    def _evaluate(self, position: Position) -> Evaluation | None:
        samples = self.source.samples_in("eval")
        if not samples:
            return None
        self.display.evaluating(samples)
        evaluation = evaluate(self.trainer, self.source, batch=self.settings.train.eval_batch)
        if self.file is not None:
            self.file.write("eval", position.step, asdict(evaluation))
        return evaluation
