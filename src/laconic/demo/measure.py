"""What a rank measures of training: times of steps, a pass over the data, bytes and accuracy."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

from pydantic import Field

from laconic.config import Settings
from laconic.data import Samples, Source
from laconic.train.metrics import evaluate
from laconic.train.ranks import Ranks
from laconic.train.trainer import Trainer

__all__ = [
    "Pass",
    "RunFigures",
    "first_batches",
    "measure_pass",
    "rotated",
    "run_figures",
    "step_ms",
    "time_steps",
]

T = TypeVar("T")

_BATCHES = 64  # generated before the clock starts; a model would learn a few of them by heart


class RunFigures(Settings):
    """Figures of one method, averaged over ranks where they differ."""

    method: str
    round_ms: tuple[tuple[float, ...], ...] = ()
    """Milliseconds of each step, round by round."""
    seconds: float = 0.0
    steps: int = 0
    bytes_forward: float = 0.0
    """Bytes that a rank sent per step; all bytes here are per step and rank."""
    bytes_backward: float = 0.0
    bytes_ids: float = 0.0
    bytes_dense: float = 0.0
    before_forward: float = 0.0
    """Bytes of the same exchange without compression."""
    before_backward: float = 0.0
    before_ids: float = 0.0
    before_dense: float = 0.0
    ms_forward: float = 0.0
    """Milliseconds of encoding, sending and decoding per step, as in the two fields below."""
    ms_backward: float = 0.0
    ms_ids: float = 0.0
    auc: float | None = None
    log_loss: float | None = None
    curve: tuple[dict[str, float | None], ...] = Field(default=())
    tables: tuple[dict[str, float | str | None], ...] = Field(default=())


def step_ms(found: RunFigures) -> float:
    """Return the median over all steps."""
    return statistics.median(time for round_ in found.round_ms for time in round_)


def rotated(items: Sequence[T], rounds: int) -> Iterator[T]:
    """Give all items in each round, each round beginning with another one.

    So a disturbance of the machine does not always hit the same item.
    """
    for round_ in range(rounds):
        for k in range(len(items)):
            yield items[(round_ + k) % len(items)]


def first_batches(source: Source, batch: int, ranks: Ranks) -> list[Samples]:
    """Make this rank's samples of the batches with which steps are timed."""
    batches = source.batches("train", global_batch=batch * ranks.count, rank=ranks.rank, ranks=ranks.count)
    return [samples for samples, _ in zip(batches, range(_BATCHES), strict=False)]


def time_steps(trainer: Trainer, batches: Sequence[Samples], first: int, steps: int) -> tuple[float, ...]:
    """Time some steps, in milliseconds, from batch ``first`` on.

    One more step before them, which finds caches full of other data, is not counted. Ids and rows
    of the next batch are prefetched in every step, also in the last: the next round begins with it.
    """
    times = []
    for step in range(first, first + steps + 1):
        samples, following = batches[step % len(batches)], batches[(step + 1) % len(batches)].lookups
        start = perf_counter()
        trainer.step(samples, following)
        times.append(1e3 * (perf_counter() - start))
    return tuple(times[1:])


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """Settings of a pass over the data."""

    batch: int
    """Number of samples of a rank in a step."""
    epoch: int
    """Number of the epoch, which determines the order of samples."""
    steps: int | None = None
    """Number of steps after which to end; None: all of the data."""
    evaluates: bool = True
    """Whether the model is evaluated at the end."""
    curve_every: int = 0
    """Steps between two evaluations during the pass; 0: none."""


def measure_pass(method: str, trainer: Trainer, source: Source, how: Pass) -> RunFigures:
    """Train once through the data; the trainer's embeddings are closed at the end."""
    ranks: Ranks = trainer.ranks
    global_batch, steps, curve_every = how.batch * ranks.count, how.steps, how.curve_every
    batches = source.batches(
        "train", global_batch=global_batch, rank=ranks.rank, ranks=ranks.count, epoch=how.epoch
    )
    curve: list[dict[str, float | None]] = []
    trained_s, step, losses = 0.0, 0, 0.0
    following = next(batches, None)
    while following is not None and (steps is None or step < steps):
        samples, following = following, next(batches, None)
        step += 1
        pauses = bool(curve_every) and step % curve_every == 0
        last = following is None or step == steps
        start = perf_counter()
        loss, _ = trainer.step(samples, None if following is None or pauses or last else following.lookups)
        trained_s += perf_counter() - start
        losses += float(loss)
        if pauses:
            figures = evaluate(trainer, source, batch=4096)
            point = {"step": step, "seconds": trained_s, "samples": step * global_batch}
            curve.append({**point, "loss": losses / curve_every, "auc": figures.auc})
            losses = 0.0
    final = evaluate(trainer, source, batch=4096) if how.evaluates else None
    found = run_figures(
        method,
        trainer,
        ranks,
        seconds=trained_s,
        steps=step,
        auc=None if final is None else final.auc,
        log_loss=None if final is None else final.log_loss,
        curve=tuple(curve),
    )
    trainer.embeddings.close()
    return found


def run_figures(method: str, trainer: Trainer, ranks: Ranks, **figures: Any) -> RunFigures:
    """Add to these figures what a trainer sent, as the mean of all ranks; every rank calls it."""
    ledger = trainer.rows.ledger
    everyone = ranks.gather({row["direction"]: _figures(row) for row in ledger.summary()})
    sums = {
        d: [sum(figures[d][i] for figures in everyone) / ranks.count for i in range(3)] for d in everyone[0]
    }
    return RunFigures(
        method=method,
        bytes_dense=trainer.dense_bytes,
        before_dense=trainer.dense_bytes_before,
        **{f"bytes_{direction}": sent for direction, (sent, _, _) in sums.items()},
        **{f"before_{direction}": before for direction, (_, before, _) in sums.items()},
        **{f"ms_{direction}": taken for direction, (_, _, taken) in sums.items()},
        tables=tuple(_tables(trainer)),
        **figures,
    )


def _figures(row: dict[str, Any]) -> tuple[float, float, float]:
    """Return bytes sent, bytes before compression and milliseconds of one direction per step."""
    taken = row["encode_ms"] + row["wire_ms"] + row["decode_ms"]
    return row["bytes_sent"], row["bytes_before"], taken


def _tables(trainer: Trainer) -> Iterator[dict[str, float | str | None]]:
    rows = trainer.rows
    plan, accounts = rows.policy.plan_for(rows.step), rows.ledger.accounts
    for t, table in enumerate(rows.layout.tables):
        codecs = plan.tables[t]
        sizes = {
            f"bytes_{d}_{when}": float(getattr(accounts[d], f"{when}_T")[t]) / max(accounts[d].steps, 1)
            for d in ("forward", "backward")
            for when in ("before", "after")
        }
        yield {
            "name": table.name,
            "rows": table.rows,
            "forward": "float32" if codecs.forward is None else repr(codecs.forward),
            "backward": "float32" if codecs.backward is None else repr(codecs.backward),
            "bound": getattr(codecs.forward, "bound", None),
            **sizes,
        }
