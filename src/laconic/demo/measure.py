"""What a rank measures of training: steps in turns, a pass over the data, and what they sent and learned."""

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
    "run_figures",
    "step_ms",
    "time_steps",
    "turns",
]

T = TypeVar("T")

_BATCHES = 64  # generated before the clock starts, used in turn: few of them would be learnt by heart


class RunFigures(Settings):
    """Figures of one method, averaged over ranks where they differ."""

    method: str
    round_ms: tuple[tuple[float, ...], ...] = ()
    """Milliseconds of each step of each round."""
    seconds: float = 0.0
    steps: int = 0
    bytes_forward: float = 0.0
    """Sent per step and rank, as all bytes here."""
    bytes_backward: float = 0.0
    bytes_ids: float = 0.0
    bytes_dense: float = 0.0
    before_forward: float = 0.0
    """The same exchange uncompressed."""
    before_backward: float = 0.0
    before_ids: float = 0.0
    before_dense: float = 0.0
    ms_forward: float = 0.0
    """Encoding, the wire and decoding, per step; ``ms_ids`` and ``ms_backward`` likewise."""
    ms_backward: float = 0.0
    ms_ids: float = 0.0
    auc: float | None = None
    log_loss: float | None = None
    curve: tuple[dict[str, float | None], ...] = Field(default=())
    tables: tuple[dict[str, float | str | None], ...] = Field(default=())


def step_ms(found: RunFigures) -> float:
    """Median over all steps."""
    return statistics.median(time for turn in found.round_ms for time in turn)


def turns(everybody: Sequence[T], rounds: int) -> Iterator[T]:
    """Give everybody a turn in each round. Another one begins each time, so that what disturbs one disturbs all."""
    for round_ in range(rounds):
        for k in range(len(everybody)):
            yield everybody[(round_ + k) % len(everybody)]


def first_batches(source: Source, batch: int, ranks: Ranks) -> list[Samples]:
    """Make this rank's part of the batches that steps are timed with."""
    parts = source.batches("train", global_batch=batch * ranks.count, rank=ranks.rank, ranks=ranks.count)
    return [samples for samples, _ in zip(parts, range(_BATCHES), strict=False)]


def time_steps(trainer: Trainer, batches: Sequence[Samples], first: int, steps: int) -> tuple[float, ...]:
    """Time some steps, in milliseconds, from batch ``first`` on.

    One more before them, which finds caches full of others' data, is not counted. Ids and rows of the next batch travel
    in every step, the last of a turn included: the next turn begins with it.
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
    """How data is gone through once."""

    batch: int
    """Samples of a rank in a step."""
    epoch: int
    """Number that the order of samples follows from."""
    steps: int | None = None
    """Steps to end after; None: all of the data."""
    evaluates: bool = True
    """Whether the model is evaluated at the end."""
    curve_every: int = 0
    """Steps between two evaluations on the way; 0: none."""


def measure_pass(method: str, trainer: Trainer, source: Source, how: Pass) -> RunFigures:
    """Train once through the data; the trainer's embeddings are closed at the end."""
    ranks: Ranks = trainer.ranks
    global_batch, steps, curve_every = how.batch * ranks.count, how.steps, how.curve_every
    parts = source.batches(
        "train", global_batch=global_batch, rank=ranks.rank, ranks=ranks.count, epoch=how.epoch
    )
    curve: list[dict[str, float | None]] = []
    trained_s, step, losses = 0.0, 0, 0.0
    ahead = next(parts, None)
    while ahead is not None and (steps is None or step < steps):
        samples, ahead = ahead, next(parts, None)
        step += 1
        pauses = bool(curve_every) and step % curve_every == 0
        last = ahead is None or step == steps
        start = perf_counter()
        loss, _ = trainer.step(samples, None if ahead is None or pauses or last else ahead.lookups)
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
    ledger = trainer.embeddings.ledger
    everyone = ranks.gather({row["direction"]: _figures(row) for row in ledger.summary()})
    sums = {d: [sum(part[d][i] for part in everyone) / ranks.count for i in range(3)] for d in everyone[0]}
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
    """Bytes sent and before, and milliseconds, of one direction per step."""
    taken = row["encode_ms"] + row["wire_ms"] + row["decode_ms"]
    return row["bytes_sent"], row["bytes_before"], taken


def _tables(trainer: Trainer) -> Iterator[dict[str, float | str | None]]:
    embeddings = trainer.embeddings
    plan = embeddings.policy.plan_for(embeddings.step) if embeddings.policy is not None else None
    accounts = embeddings.ledger.accounts
    for t, table in enumerate(embeddings.layout.tables):
        codecs = plan.tables[t] if plan is not None else None
        sizes = {
            f"bytes_{d}_{when}": float(getattr(accounts[d], f"{when}_T")[t]) / max(accounts[d].steps, 1)
            for d in ("forward", "backward")
            for when in ("before", "after")
        }
        yield {
            "name": table.name,
            "rows": table.rows,
            "forward": "float32" if codecs is None or codecs.forward is None else repr(codecs.forward),
            "backward": "float32" if codecs is None or codecs.backward is None else repr(codecs.backward),
            "bound": getattr(codecs.forward, "bound", None) if codecs is not None else None,
            **sizes,
        }
