"""The methods that are compared, and ranks that train with them.

All methods use the same engine, model and links. They differ in what they send:

========= ======= ======================== ===================== ===== ===============
method    sends   rows                     gradients             ids   dense gradients
========= ======= ======================== ===================== ===== ===============
plain     pooled  float32                  float32               raw   float32
fp16      pooled  float16                  float16               raw   float32
int8      pooled  int8 row-wise            int8 row-wise         raw   float32
rows_fp32 rows    float32                  float32               raw   float32
sc24      pooled  SC'24 hybrid, its bounds float32               raw   float32
laconic   rows    BoundedRows              BoundedRows, unbiased coded Levels
========= ======= ======================== ===================== ===== ===============

Methods that send pooled vectors shard tables table-wise, as the DLRM paper does; methods that send
rows shard them row-wise.

These six use torch's all-to-all, which gloo runs in one direction at a time. With the suffix
``_pairwise`` they use sends and receives, as Laconic does by default, which helps methods that send
much.

Laconic's bounds are its defaults, by the square root of the rows that tables send.

``TrainingPool`` starts ranks as ``python -m benchmarks.training.worker JOBS ANSWERS``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from benchmarks.harness import TrainingRecipe
from benchmarks.workers import WorkerPool, serve
from laconic.adapt.adaptive import make_adaptive_policy
from laconic.adapt.compression import Compression
from laconic.adapt.evidence import Adaptation
from laconic.adapt.policy import FixedPolicy
from laconic.adapt.settings import CompressionSettings, DenseMethod
from laconic.codecs import BlockCodec, Cast, Hybrid
from laconic.config import Settings
from laconic.data import DataSettings, Samples, Schema, Source, open_source
from laconic.demo.measure import (
    Pass,
    RunFigures,
    first_batches,
    measure_pass,
    rotated,
    run_figures,
    time_steps,
)
from laconic.exchange.exchange_plan import ExchangePlan, Policy, TableCodecs
from laconic.exchange.ranks.world import GroupWorld
from laconic.train.ranks import Ranks, process_group
from laconic.train.settings import DenseSettings, EmbeddingSettings, ModelSettings, RunSettings, TrainSettings
from laconic.train.trainer import Trainer


@dataclass(frozen=True, slots=True)
class TrainingMethod:
    """One way to send rows and gradients."""

    name: str
    send: Literal["rows", "pooled"]
    codecs: Callable[[float], TableCodecs]
    """Returns what a table travels as, by its bound in the paper."""
    coded_ids: bool = False
    dense: Literal["exact", "levels"] = "exact"
    """How dense gradients are sent."""
    pairwise: bool = False
    """Sends and receives instead of torch's all-to-all."""

    def embeddings(self, base: EmbeddingSettings) -> EmbeddingSettings:
        """Return the settings of embeddings, with the sharding that fits the method."""
        sharding = "row" if self.send == "rows" else "table"
        return base.model_copy(update={"send": self.send, "sharding": sharding, "replicate_below": 0})

    def policy(self, schema: Schema) -> FixedPolicy:
        """Return what its tables travel as."""
        tables = tuple(self.codecs(paper_bound(feature.rows)) for feature in schema.categorical)
        return FixedPolicy(ExchangePlan(tables, self.coded_ids))


def paper_bound(rows: int) -> float:
    """Return the bound of a table's class in the SC'24 paper, relative to the range."""
    if rows >= 415_000:
        return 0.01
    return 0.05 if rows <= 970 else 0.03


def _alike(rows: BlockCodec | None, gradients: BlockCodec | None) -> Callable[[float], TableCodecs]:
    return lambda _: TableCodecs(rows, gradients)


def _sc24(bound: float) -> TableCodecs:
    return TableCodecs(Hybrid(bound, relative_to="range"), None)


_DEFAULT = TableCodecs(Compression().rows, Compression().gradients, ("forward", "backward"))


METHODS: dict[str, TrainingMethod] = {
    method.name: method
    for method in (
        TrainingMethod("plain", "pooled", _alike(None, None)),
        TrainingMethod("fp16", "pooled", _alike(Cast("fp16"), Cast("fp16"))),
        TrainingMethod("int8", "pooled", _alike(Cast("int8"), Cast("int8"))),
        TrainingMethod("rows_fp32", "rows", _alike(None, None)),
        TrainingMethod("sc24", "pooled", _sc24),
        TrainingMethod("laconic", "rows", lambda _: _DEFAULT, coded_ids=True, dense="levels"),
    )
}

ALL_METHODS = METHODS | {
    f"{name}_pairwise": replace(METHODS[name], name=f"{name}_pairwise", pairwise=True) for name in METHODS
}


class _Job(Settings):
    data: DataSettings
    model: ModelSettings
    recipe: TrainingRecipe = TrainingRecipe()
    """Learning rates and their warm-up."""


class Steps(_Job):
    """Time some steps of every method, in turns."""

    methods: tuple[str, ...]
    """Names of methods. ``alone`` is this rank's batch with nothing sent; ``auto`` adapts."""
    batch: int
    rounds: int
    steps: int
    """Steps of each method in each round; one more before them is not counted."""
    settling: int = 45
    """Steps of ``auto`` before the clock starts, with six reviews of the guard."""


class Epoch(_Job):
    """Train one method on a data set, once through."""

    method: str
    batch: int
    seed: int = 0
    steps: int | None = None
    evaluate: bool = True
    dense: DenseSettings | None = None
    """Settings of the dense part, if they differ from the recipe's."""
    dense_sends: DenseMethod | None = None
    """What dense gradients travel as, if it differs from the method's."""
    curve_every: int = 0
    """Steps between two evaluations, for a curve; 0: evaluate only at the end."""


class TrainingPool(WorkerPool):
    """Some ranks that train; a context manager."""

    def __init__(self, ranks: int, *, rate_mbit: float | None = None) -> None:
        super().__init__("benchmarks.training.worker", ranks, rate_mbit=rate_mbit)

    def time_steps(self, job: Steps) -> dict[str, RunFigures]:
        """Time steps of several methods, in turns."""
        return {answer.method: answer for answer in self.ask(job, RunFigures)}

    def train_epoch(self, job: Epoch) -> RunFigures:
        """Train one method once through its data."""
        return self.ask(job, RunFigures)[0]


class _Timed:
    """Trainers of all methods, kept from job to job: tables take a while to make."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._trainers: dict[tuple[str, str], Trainer] = {}
        self._batches: dict[str, list[Samples]] = {}
        self._done: Counter[int] = Counter()  # steps of each trainer
        self._adaptations: dict[int, Adaptation] = {}  # of trainers that adapt

    def measure(self, job: Steps) -> list[RunFigures]:
        key = job.model_dump_json(include={"data", "model", "batch"})
        source = open_source(job.data)
        if key not in self._batches:
            self._batches[key] = first_batches(source, job.batch, self.ranks)
        batches = self._batches[key]
        for method in job.methods:
            if (key, method) not in self._trainers:
                self._trainers[key, method] = self._trainer(job, source, method)
            # ``auto`` needs steps to adapt, and bytes of its rival depend on what was learned
            if "auto" in job.methods and method in ("auto", "laconic_pairwise"):
                self._settle(self._trainers[key, method], batches, job.settling)
            self._trainers[key, method].rows.ledger.reset()
        rounds: dict[str, list[tuple[float, ...]]] = {method: [] for method in job.methods}
        for method in rotated(job.methods, job.rounds):
            rounds[method].append(self._turn(self._trainers[key, method], batches, job.steps))
        return [
            run_figures(method, self._trainers[key, method], self.ranks, round_ms=tuple(rounds[method]))
            for method in job.methods
        ]

    def _turn(self, trainer: Trainer, batches: list[Samples], steps: int) -> tuple[float, ...]:
        self.ranks.barrier()
        times = time_steps(trainer, batches, self._done[id(trainer)], steps)
        self._done[id(trainer)] += steps + 1
        return times

    def _settle(self, trainer: Trainer, batches: list[Samples], steps: int) -> None:
        """Let the guard and the economy decide before the clock starts; the link may be new."""
        adaptation = self._adaptations.get(id(trainer))
        trainer.embeddings.discard_prefetched()
        for _ in range(0 if self._done[id(trainer)] else steps):
            step = self._done[id(trainer)]
            samples = batches[step % len(batches)]
            loss, _ = trainer.step(samples)
            self._done[id(trainer)] += 1
            if adaptation is not None:
                ahead = [*batches, *batches][(step + 1) % len(batches) :]
                adaptation.after(step + 1, float(loss), len(samples), ahead)
        if adaptation is not None:
            for _ in range(2):  # hysteresis may hold back the second half of a change
                adaptation.review_economy(self._done[id(trainer)], batches[0])

    def _trainer(self, job: Steps, source: Source, method: str) -> Trainer:
        if method == "alone":
            return _trainer(job, source, "plain", Ranks(0, 1))
        if method == "auto":
            return self._adaptive_trainer(job, source)
        return _trainer(job, source, method, self.ranks)

    def _adaptive_trainer(self, job: Steps, source: Source) -> Trainer:
        names = [feature.name for feature in source.schema.categorical]
        policy = make_adaptive_policy(CompressionSettings(policy="auto").effective(), names, self.ranks.count)
        trainer = _trainer(job, source, "laconic_pairwise", self.ranks, policy)
        self._adaptations[id(trainer)] = Adaptation(trainer, policy)
        return trainer


def _epoch(ranks: Ranks, job: Epoch) -> list[RunFigures]:
    source = open_source(job.data)
    how = Pass(
        batch=job.batch, epoch=job.seed, steps=job.steps, evaluates=job.evaluate, curve_every=job.curve_every
    )
    return [measure_pass(job.method, _trainer(job, source, job.method, ranks), source, how)]


def _trainer(
    job: Steps | Epoch, source: Source, method: str, ranks: Ranks, policy: Policy | None = None
) -> Trainer:
    chosen, recipe = ALL_METHODS[method], job.recipe
    own, sends, seed = (job.dense, job.dense_sends, job.seed) if isinstance(job, Epoch) else (None, None, 0)
    settings = RunSettings(
        data=job.data,
        model=job.model,
        embeddings=chosen.embeddings(EmbeddingSettings(lr=recipe.rows)),
        dense=own or DenseSettings(lr=recipe.dense),
        # what adapts leaves dense gradients alone where the link is fast, too
        compression=CompressionSettings(
            dense=sends or DenseMethod(method=chosen.dense), economy=policy is not None
        ),
        train=TrainSettings(seed=seed, lr_warmup=recipe.warmup),
    )
    world = GroupWorld(pairwise=chosen.pairwise)
    return Trainer(settings, source.schema, ranks, policy or chosen.policy(source.schema), world=world)


if __name__ == "__main__":
    with process_group(timeout_s=600) as ranks:
        serve(ranks, {Steps: _Timed(ranks).measure, Epoch: partial(_epoch, ranks)})
