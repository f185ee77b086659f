"""Ranks that train: the jobs that they are given, the pool that gives them, and what one rank does.

``TrainingPool`` starts ranks as ``python -m benchmarks.training.worker JOBS ANSWERS``.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from benchmarks.data_sets import TrainingRecipe
from benchmarks.training.methods import find_method
from benchmarks.worker import serve
from benchmarks.worker_pool import WorkerPool
from laconic.adapt.adaptive import make_adaptive_policy
from laconic.adapt.evidence import Adaptation
from laconic.adapt.settings import ExchangeSettings, effective_exchange
from laconic.config import Settings
from laconic.data import DataSettings, Samples, Source, open_source
from laconic.demo.measure import Pass, RunFigures, first_batches, measure_pass, run_figures, time_steps, turns
from laconic.exchange.exchange_plan import Policy
from laconic.exchange.world import GroupWorld
from laconic.train.ranks import Ranks, process_group
from laconic.train.settings import DenseSettings, EmbeddingSettings, ModelSettings, RunSettings, TrainSettings
from laconic.train.trainer import Trainer


class _Job(Settings):
    data: DataSettings
    model: ModelSettings
    recipe: TrainingRecipe = TrainingRecipe()
    """How it is trained."""


class Steps(_Job):
    """Time some steps of every method, in turns."""

    methods: tuple[str, ...]
    """``alone`` is this rank's batch on this rank, with nothing sent; ``auto`` adapts its bounds and its choices."""
    batch: int
    rounds: int
    steps: int
    """Steps of each method in each round; one more before them is not counted."""
    settling: int = 45
    """Steps of what adapts before the clock starts: the guard's second fork is behind them, its third far ahead."""


class Epoch(_Job):
    """Train one method on a data set, once through."""

    method: str
    batch: int
    seed: int = 0
    steps: int | None = None
    evaluate: bool = True
    dense: DenseSettings | None = None
    """How the dense part is trained, where it is not as the recipe and the method say."""
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
            # what adapts needs steps for it, and what it is compared with sends as much as its model has learnt
            if "auto" in job.methods and method in ("auto", "laconic_pairwise"):
                self._settle(self._trainers[key, method], batches, job.settling)
            self._trainers[key, method].embeddings.ledger.reset()
        rounds: dict[str, list[tuple[float, ...]]] = {method: [] for method in job.methods}
        for method in turns(job.methods, job.rounds):
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
        """Let what adapts decide before the clock starts; the link may have changed since the last job."""
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
        exchange = effective_exchange(RunSettings(data=job.data, policy="auto"))
        names = [feature.name for feature in source.schema.categorical]
        policy = make_adaptive_policy(exchange, names, self.ranks.count)
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
    chosen, recipe = find_method(method), job.recipe
    own, seed = (job.dense, job.seed) if isinstance(job, Epoch) else (None, 0)
    settings = RunSettings(
        data=job.data,
        model=job.model,
        embeddings=chosen.embeddings(EmbeddingSettings(rate=recipe.rows)),
        dense=own or DenseSettings(rate=recipe.dense, send=chosen.dense),
        # what adapts leaves dense gradients alone where the link is fast, too
        exchange=ExchangeSettings(economy=policy is not None),
        train=TrainSettings(seed=seed, rate_warmup=recipe.warmup),
    )
    world = GroupWorld(pairwise=chosen.pairwise)
    return Trainer(settings, source.schema, ranks, policy or chosen.policy(source.schema), world=world)


if __name__ == "__main__":
    with process_group(timeout_s=600) as ranks:
        serve(ranks, {Steps: _Timed(ranks).measure, Epoch: partial(_epoch, ranks)})
