"""One rank of the placement benchmark; started by ``WorkerPool`` as ``python -m benchmarks.placement.worker``."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Any

import torch

from benchmarks.placement.jobs import Contender, Placed, PlacedSteps
from benchmarks.placement.taught import NO_RATE, copy_state, taught
from benchmarks.worker import serve
from laconic.adapt.settings import ExchangeSettings
from laconic.data import Samples, open_source
from laconic.exchange.world import GroupWorld
from laconic.train.placement import make_placement
from laconic.train.ranks import Ranks, process_group
from laconic.train.settings import DenseSettings, EmbeddingSettings, RunSettings
from laconic.train.trainer import Trainer

_BATCHES = 64  # read before the clock starts, used in turn
_CLOSE = 1.1  # times the fastest: a few rounds do not tell such apart


def main() -> None:
    """Work until told to stop."""
    torch.set_num_threads(1)
    with process_group(timeout_s=600) as ranks:
        timed = _Timed(ranks)
        serve(ranks, {PlacedSteps: timed.measure})


@dataclass(slots=True)
class _Kept:
    """A trainer, from job to job."""

    trainer: Trainer
    every: int
    """Steps in which its copies of hot rows become equal."""
    done: int = 0
    """Steps."""

    def step(self, batches: Sequence[Samples]) -> None:
        """Train on the next of these batches, in turn."""
        samples, following = (batches[(self.done + k) % len(batches)] for k in (0, 1))
        self.trainer.step(samples, following.lookups)
        self.done += 1


class _Timed:
    """Trainers of one data set, kept as long as jobs name them: tables take a while to make."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._data = ""
        self._batches: list[Samples] = []
        self._taught: Trainer
        self._kept: dict[str, _Kept] = {}

    def measure(self, job: PlacedSteps) -> list[Placed]:
        self._prepare(job)
        for contender in job.contenders:
            self._kept[contender.name].trainer.embeddings.ledger.reset()
        turns: dict[str, list[float]] = {contender.name: [] for contender in job.contenders}
        self._take_turns(turns, [*turns], job.rounds, job.steps)
        mine = {name: statistics.median(means) for name, means in turns.items()}
        median: dict[str, float] = self.ranks.gather(mine)[0]
        ahead = {name for race in job.races for name in leaders(race, median)}
        self._take_turns(turns, [name for name in turns if name in ahead], job.further_rounds, job.steps)
        return [self._answer(contender.name, turns[contender.name]) for contender in job.contenders]

    def _take_turns(
        self, turns: dict[str, list[float]], names: Sequence[str], rounds: int, steps: int
    ) -> None:
        """Let the first follow the last, and the others each other in random order: the same on every rank, another in each round."""
        order = random.Random(rounds)
        between = names[1:-1]
        for _ in range(rounds):
            for name in (*names[:1], *order.sample(between, len(between)), *names[1:][-1:]):
                turns[name].append(self._turn(name, steps))

    def _prepare(self, job: PlacedSteps) -> None:
        data = job.model_dump_json(include={"data", "batch", "model"})
        source = open_source(job.data)
        if data != self._data:
            self._forget(set())
            self._data, ranks = data, self.ranks
            parts = source.batches(
                "train", global_batch=job.batch * ranks.count, rank=ranks.rank, ranks=ranks.count
            )
            self._batches = list(islice(parts, _BATCHES))
            self._taught = taught(job.data, job.batch, job.model)
        self._forget({contender.name for contender in job.contenders})  # tables of all rates would not fit
        for contender in job.contenders:
            if contender.name not in self._kept:
                kept = self._kept[contender.name] = _contending(contender, job, self.ranks)
                copy_state(self._taught, kept.trainer)

    def _forget(self, wanted: set[str]) -> None:
        for name in [name for name in self._kept if name not in wanted]:
            trainer = self._kept.pop(name).trainer
            trainer.embeddings.close()
            if trainer.compressor is not None:
                trainer.compressor.close()

    def _turn(self, name: str, steps: int) -> float:
        """Time some steps, from when all ranks are ready to when all are done, and return their mean in milliseconds.

        What a rank has sent may reach the other after its own step: one step may take half of the next one's time, and
        only several of them, with nothing on its way before and after, say what a step takes. The first, which
        finds caches full of others' data, is not counted. Where copies are synchronized every k steps, there are
        as many as make whole periods: none is like another.
        """
        kept = self._kept[name]
        kept.step(self._batches)
        count = -(-steps // kept.every) * kept.every
        self.ranks.barrier()
        start = perf_counter()
        for _ in range(count):
            kept.step(self._batches)
        self.ranks.barrier()
        return 1e3 * (perf_counter() - start) / count

    def _answer(self, name: str, turn_ms: list[float]) -> Placed:
        trainer = self._kept[name].trainer
        rows = {row["direction"]: row for row in trainer.embeddings.ledger.summary()}
        everyone: list[dict[str, Any]] = self.ranks.gather(rows)

        def mean(direction: str, figure: str) -> float:
            return float(sum(part[direction][figure] for part in everyone)) / len(everyone)

        codec_ms = {
            figure: mean("forward", f"{figure}_ms") + mean("backward", f"{figure}_ms")
            for figure in ("encode", "decode")
        }
        return Placed(
            name=name,
            turn_ms=tuple(turn_ms),
            bytes={direction: mean(direction, "bytes_sent") for direction in rows},
            before={direction: mean(direction, "bytes_before") for direction in rows},
            codec_ms=codec_ms,
            dense_bytes=4 * sum(parameter.numel() for parameter in trainer.model.parameters()),
            dense_sent=trainer.dense_bytes if trainer.ranks.count > 1 else 0,
            dense_work_ms=_dense_work_ms(trainer),
        )


def leaders(race: Sequence[str], took: Mapping[str, float]) -> list[str]:
    """Those who may be the fastest of a race: two of them, all that are about as fast, and the first named, about which it is."""
    order = sorted(race, key=lambda name: took[name])
    most = _CLOSE * took[order[0]]
    return [name for name in order if name in (*order[:2], race[0]) or took[name] <= most]


def _dense_work_ms(trainer: Trainer) -> float:
    compressor = trainer.compressor
    return 1e3 * compressor.work_s / compressor.step if compressor is not None and compressor.step else 0.0


def _contending(contender: Contender, job: PlacedSteps, ranks: Ranks) -> _Kept:
    settings = RunSettings(
        data=job.data,
        model=job.model,
        embeddings=EmbeddingSettings(sharding="table", send="pooled", rate=NO_RATE),
        dense=DenseSettings(send=contender.sends.dense, rate=NO_RATE),
        exchange=ExchangeSettings(kind=contender.sends.rows, coded_ids=contender.codec != "plain"),
    )
    if contender.placement == "alone":
        ranks = Ranks(0, 1)
    schema = open_source(job.data).schema
    placement = make_placement(settings, schema, ranks.count, contender.plan)
    world = GroupWorld(pairwise=contender.codec != "plain")
    return _Kept(Trainer(settings, schema, ranks, world=world, placement=placement), placement.hot_every)


if __name__ == "__main__":
    main()
