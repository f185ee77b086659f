"""A training run on one rank: data, trainer, checkpoints, metrics and display, wired together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from time import perf_counter

from rich.console import Console

from laconic.data import Samples, Source, open_source
from laconic.errors import ConfigError
from laconic.train.checkpoint import Position, load_checkpoint, newest_checkpoint, save_checkpoint
from laconic.train.display import Display
from laconic.train.evaluation import evaluate
from laconic.train.metrics import Evaluation, Window
from laconic.train.metrics_file import MetricsFile
from laconic.train.ranks import Ranks, process_group
from laconic.train.settings import RunSettings
from laconic.train.trainer import Trainer

__all__ = ["RunResult", "run"]


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended."""

    steps: int
    seconds: float
    evaluation: Evaluation | None
    ledger: list[dict[str, float | int | str]]
    dense_bytes: int


def run(settings: RunSettings, *, resume: bool, console: Console | None) -> RunResult:
    """Train as the settings say; the leading rank writes and shows."""
    with process_group(settings.train.timeout_s) as ranks:
        source = open_source(settings.data)
        trainer = Trainer(settings, source.schema, ranks)
        folder = settings.train.out / "checkpoints"
        position = Position()
        if resume:
            newest = newest_checkpoint(folder)
            position = load_checkpoint(trainer, newest) if newest is not None else position
        elif newest_checkpoint(folder) is not None:
            raise ConfigError(
                f"train.out: {str(settings.train.out)!r} has checkpoints of another run; continue it with --resume, "
                "or choose another folder"
            )
        return _Run(settings, source, trainer, console if ranks.leads else None).train(position)


class _Run:
    def __init__(
        self, settings: RunSettings, source: Source, trainer: Trainer, console: Console | None
    ) -> None:
        self.settings, self.source, self.trainer = settings, source, trainer
        self.ranks: Ranks = trainer.ranks
        self.global_batch = settings.train.batch * self.ranks.count
        per_epoch = -(-source.samples_in("train") // self.global_batch)
        if not per_epoch:
            raise ConfigError("data: expected training samples, got none")
        total = per_epoch * settings.train.epochs
        self.steps = min(total, settings.train.steps or total)
        self.display = Display(console, self.steps)
        self.file: MetricsFile | None = None
        if self.ranks.leads:
            settings.train.out.mkdir(parents=True, exist_ok=True)
            text = json.dumps(settings.model_dump(mode="json"), indent=2)
            (settings.train.out / "settings.json").write_text(text + "\n")
            self.file = MetricsFile(settings.train.out, tensorboard=settings.train.tensorboard)

    def train(self, begin: Position) -> RunResult:
        start = perf_counter()
        position, evaluation = begin, None
        try:
            for position, evaluation in self._steps(begin):  # noqa: B007 -- the last one counts
                pass
            if evaluation is None:
                evaluation = self._evaluate(position)
            save_checkpoint(
                self.trainer,
                self.settings.train.out / "checkpoints",
                position,
                self.settings.train.keep_checkpoints,
            )
        finally:
            self.display.close()
            if self.file is not None:
                self.file.close()
        embeddings = self.trainer.embeddings
        if evaluation is not None:
            self.display.evaluated(position.step, evaluation)
        self.display.ledger(embeddings.ledger, self.trainer.dense_bytes)
        return RunResult(
            position.step,
            perf_counter() - start,
            evaluation,
            embeddings.ledger.summary(),
            self.trainer.dense_bytes,
        )

    def _steps(self, position: Position) -> Iterator[tuple[Position, Evaluation | None]]:
        """Train to the end; yields where it is after every step, with an evaluation if there was one."""
        settings, window = self.settings.train, Window()
        batches = self._batches(position)
        ahead = next(batches, None) if position.step < self.steps else None
        begun, samples_seen = perf_counter(), 0
        while ahead is not None:
            position, samples = ahead
            step = position.step
            evaluates = settings.eval_every and step % settings.eval_every == 0
            saves = settings.checkpoint_every and step % settings.checkpoint_every == 0 and step < self.steps
            ahead = next(batches, None) if step < self.steps else None
            # ids of the next batch travel during this step, unless something else comes in between
            following = ahead[1].lookups if ahead is not None and not (evaluates or saves) else None
            loss, logits_B = self.trainer.step(samples, following)
            samples_seen += self.global_batch
            window.add(loss, logits_B, samples.label_B)
            if step % settings.log_every == 0 or step == self.steps:
                self._log(step, window, samples_seen / (perf_counter() - begun))
            evaluation = self._evaluate(position) if evaluates else None
            if evaluation is not None and step < self.steps:
                self.display.evaluated(step, evaluation)
            if saves:
                save_checkpoint(
                    self.trainer, settings.out / "checkpoints", position, settings.keep_checkpoints
                )
            yield position, evaluation

    def _batches(self, position: Position) -> Iterator[tuple[Position, Samples]]:
        """Batches from a position on, each with the position after it."""
        per_epoch = self.source.samples_in("train")
        step, first = position.step, position.sample
        for epoch in range(position.epoch, self.settings.train.epochs):
            sample = first
            parts = self.source.batches(
                "train",
                global_batch=self.global_batch,
                rank=self.ranks.rank,
                ranks=self.ranks.count,
                epoch=epoch,
                start=first,
            )
            for samples in parts:
                step += 1
                # another number of ranks has another batch: the first one only reaches its next boundary
                sample = min((sample // self.global_batch + 1) * self.global_batch, per_epoch)
                yield Position(step, epoch, sample), samples
            first = 0

    def _log(self, step: int, window: Window, samples_per_s: float) -> None:
        ledger = self.trainer.embeddings.ledger
        self.display.step(
            step,
            f"loss {window.loss:.4f}  AUC {window.auc:.4f}  {samples_per_s:,.0f} samples/s  {ledger.ratio:.1f}x less",
        )
        if self.file is not None:
            sent = {f"bytes_{row['direction']}": row["bytes_sent"] for row in ledger.summary()}
            values = {
                "loss": window.loss,
                "auc": window.auc,
                "samples_per_s": samples_per_s,
                "ratio": ledger.ratio,
            }
            self.file.write("train", step, {**values, **sent})

    def _evaluate(self, position: Position) -> Evaluation | None:
        samples = self.source.samples_in("eval")
        if not samples:
            return None
        self.display.evaluating(samples)
        evaluation = evaluate(
            self.trainer, self.source, batch=self.settings.train.eval_batch, tick=lambda _: None
        )
        if self.file is not None:
            self.file.write("eval", position.step, asdict(evaluation))
        return evaluation
