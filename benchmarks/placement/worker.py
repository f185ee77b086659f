"""One rank of the placement benchmark, and the jobs it is given.

``WorkerPool`` starts it as ``python -m benchmarks.placement.worker JOBS ANSWERS``. Contenders take
short turns, and all begin with the same pretrained model, because sizes of coded rows and gradients
depend on how much was learned. They take different numbers of steps, so they learn no more.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from benchmarks.workers import serve
from laconic.adapt.settings import CompressionSettings
from laconic.config import Settings
from laconic.data import DataSettings, Samples, open_source
from laconic.exchange.ranks.world import GroupWorld
from laconic.train.placement import make_placement
from laconic.train.ranks import Ranks, process_group
from laconic.train.settings import DenseSettings, EmbeddingSettings, ModelSettings, RunSettings
from laconic.train.trainer import Trainer

__all__ = [
    "NO_RATE",
    "Codec",
    "Contender",
    "Placed",
    "PlacedSteps",
    "Sends",
    "copy_state",
    "leaders",
    "pretrained",
]

NO_RATE = 1e-12
"""Learning rate of those who take steps, but learn no more."""
_PRETRAINED_STEPS = 48
_BATCHES = 64  # read before the clock starts, used in turn
_CLOSE = 1.1  # times the fastest: a few rounds do not tell such apart

Codec = Literal["plain", "exact", "coded"]


class Sends(Settings):
    """How rows and dense gradients are sent, in the words of the run's settings."""

    rows: Literal["exact", "lossless", "bounded"] = "exact"
    """Rows and their gradients."""

    dense: Literal["exact", "lossless", "levels"] = "exact"
    """Dense gradients."""


class Contender(Settings):
    """One way to place tables and to send what they need."""

    placement: str
    """``alone``: a rank's batch on that rank, nothing sent; ``plain``: tables whole on ranks,
    pooled, as DLRM does."""

    codec: Codec
    """``plain``: float32, raw ids, torch's all-to-all; ``exact``: the same bits, coded where that
    pays, and coded ids; ``coded``: Laconic's defaults."""

    sends: Sends = Sends()
    """How rows and dense gradients are sent by this codec."""

    plan: Path | None = None
    """Plan that says where tables are."""

    @property
    def name(self) -> str:
        """Different for each."""
        return f"{self.placement} {self.codec} {self.sends.rows} {self.sends.dense}"


class PlacedSteps(Settings):
    """A job: time steps of contenders, in turns."""

    data: DataSettings
    batch: int
    """Samples of a rank in a step."""
    model: ModelSettings
    contenders: tuple[Contender, ...]
    """What fills links for long disturbs the next one even after a step that is not counted: one
    that sends nothing should be first, plain last."""
    rounds: int
    steps: int
    """Steps of each contender in each round; one more before them is not counted."""
    races: tuple[tuple[str, ...], ...] = ()
    """Names of contenders that are compared with one another, the planner's first."""
    further_rounds: int = 0
    """Rounds of those that lead their race: of several that are alike, one is lucky in a few
    rounds."""


class Placed(Settings):
    """Figures of one contender, averaged over ranks where they differ."""

    name: str
    turn_ms: tuple[float, ...]
    """Mean step of each turn, in which all ranks do the same steps from the same moment on."""
    bytes: dict[str, float]
    """Bytes sent per step and rank, by direction."""
    before: dict[str, float]
    """Bytes per step and rank before coding, by direction."""
    codec_ms: dict[str, float]
    """Milliseconds of encoding and decoding rows and gradients, per step."""
    dense_bytes: float
    """Bytes of the dense gradients themselves, not of what a rank sends."""
    dense_sent: float
    """Bytes of dense gradients sent per step and rank."""
    dense_work_ms: float
    """Milliseconds that a rank computed for them in a step; 0 where gloo sums them as they are."""


def pretrained(data: DataSettings, batch: int, model: ModelSettings) -> Trainer:
    """Train alone for a while, on the same samples on every rank."""
    source = open_source(data)
    trainer = Trainer(RunSettings(data=data, model=model), source.schema, Ranks(0, 1))
    for samples in islice(source.batches("train", global_batch=batch, rank=0, ranks=1), _PRETRAINED_STEPS):
        trainer.step(samples)
    return trainer


def copy_state(source: Trainer, target: Trainer) -> None:
    """Copy weights and rows from a trainer with whole tables, without state of optimizers."""
    target.model.load_state_dict(source.model.state_dict())
    (whole,) = source.rows.shards()
    for shards in target.rows.shards():
        for table in source.rows.layout.tables:
            _, whole_RD, _ = whole.view(table.name)
            ids, rows_RD, _ = shards.view(table.name)
            rows_RD.copy_(whole_RD[ids.start : ids.stop : ids.step])
            hot_ids, copies_RD, _ = shards.hot_rows(table.name)
            copies_RD.copy_(whole_RD[hot_ids])


@dataclass(slots=True)
class _Kept:
    """A trainer, from job to job."""

    trainer: Trainer
    every: int
    """Steps in which its copies of hot rows become equal."""
    done: int = 0
    """Steps that it took."""

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
        self._pretrained: Trainer
        self._kept: dict[str, _Kept] = {}

    def measure(self, job: PlacedSteps) -> list[Placed]:
        self._prepare(job)
        for contender in job.contenders:
            self._kept[contender.name].trainer.rows.ledger.reset()
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
        """Let the first follow the last, and the others each other in random order.

        The order is the same on every rank, and another in each round.
        """
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
            self._pretrained = pretrained(job.data, job.batch, job.model)
        self._forget({contender.name for contender in job.contenders})  # tables of all rates would not fit
        for contender in job.contenders:
            if contender.name not in self._kept:
                kept = self._kept[contender.name] = _contending(contender, job, self.ranks)
                copy_state(self._pretrained, kept.trainer)

    def _forget(self, wanted: set[str]) -> None:
        for name in [name for name in self._kept if name not in wanted]:
            trainer = self._kept.pop(name).trainer
            trainer.embeddings.close()
            if trainer.compressor is not None:
                trainer.compressor.close()

    def _turn(self, name: str, steps: int) -> float:
        """Time some steps together, and return their mean in milliseconds.

        Values that a rank has sent may reach the other after its own step, so one step may take
        half of the next one's time. Only several steps, with nothing on its way before and after
        them, tell what a step takes. The first step finds caches full of others' data and is not
        counted. If copies are synchronized every k steps, whole periods are timed, because steps
        differ.
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
        rows = {row["direction"]: row for row in trainer.rows.ledger.summary()}
        everyone: list[dict[str, Any]] = self.ranks.gather(rows)

        def mean(direction: str, figure: str) -> float:
            return float(sum(part[direction][figure] for part in everyone)) / len(everyone)

        compressor = trainer.compressor
        worked = compressor is not None and compressor.step
        return Placed(
            name=name,
            turn_ms=tuple(turn_ms),
            bytes={direction: mean(direction, "bytes_sent") for direction in rows},
            before={direction: mean(direction, "bytes_before") for direction in rows},
            codec_ms={
                figure: mean("forward", f"{figure}_ms") + mean("backward", f"{figure}_ms")
                for figure in ("encode", "decode")
            },
            dense_bytes=4 * sum(parameter.numel() for parameter in trainer.model.parameters()),
            dense_sent=trainer.dense_bytes if trainer.ranks.count > 1 else 0,
            dense_work_ms=1e3 * compressor.work_s / compressor.step if compressor and worked else 0.0,
        )


def leaders(race: Sequence[str], took: Mapping[str, float]) -> list[str]:
    """Return whom to time longer: the two fastest, all within 10 %, and the planner's own."""
    order = sorted(race, key=lambda name: took[name])
    most = _CLOSE * took[order[0]]
    return [name for name in order if name in (*order[:2], race[0]) or took[name] <= most]


def _contending(contender: Contender, job: PlacedSteps, ranks: Ranks) -> _Kept:
    settings = RunSettings(
        data=job.data,
        model=job.model,
        embeddings=EmbeddingSettings(sharding="table", send="pooled", lr=NO_RATE),
        dense=DenseSettings(lr=NO_RATE),
        compression=CompressionSettings.model_validate(
            {
                "rows": contender.sends.rows,
                "gradients": contender.sends.rows,
                "dense": contender.sends.dense,
                "ids": contender.codec != "plain",
            }
        ),
    )
    if contender.placement == "alone":
        ranks = Ranks(0, 1)
    schema = open_source(job.data).schema
    placement = make_placement(settings, schema, ranks.count, contender.plan)
    world = GroupWorld(pairwise=contender.codec != "plain")
    return _Kept(Trainer(settings, schema, ranks, world=world, placement=placement), placement.hot_every)


def main() -> None:
    """Work until told to stop."""
    with process_group(timeout_s=600) as ranks:
        serve(ranks, {PlacedSteps: _Timed(ranks).measure})


if __name__ == "__main__":
    main()
