"""One rank of the benchmark: does the jobs that the driver sends, one after the other.

Started by ``driver`` as ``python -m benchmarks.training.worker JOBS ANSWERS``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import torch

from benchmarks.crew_member import do_jobs
from benchmarks.training.jobs import Answer, Epoch, Steps
from benchmarks.training.methods import find_method
from laconic.collectives import Ledger
from laconic.collectives.world import Joined
from laconic.data import Samples, Source, open_source
from laconic.exchange_plan import Policy
from laconic.train.adaptation import Adaptation, make_adaptive_policy
from laconic.train.effective_exchange import effective_exchange
from laconic.train.evaluation import evaluate
from laconic.train.metrics import Evaluation
from laconic.train.ranks import Ranks, process_group
from laconic.train.settings import (
    DenseSettings,
    EmbeddingSettings,
    ExchangeSettings,
    RunSettings,
    TrainSettings,
)
from laconic.train.trainer import Trainer

_BATCHES = 64  # generated before the clock starts, used in turn: few of them would be learnt by heart
_SETTLING = 45  # steps: the guard's second fork is behind them, its third far ahead


def main() -> None:
    """Work until told to stop."""
    torch.set_num_threads(1)
    with process_group(timeout_s=600) as ranks:
        timed = _Timed(ranks)

        def do(kind: str, text: str) -> list[Answer]:
            if kind == "steps":
                return timed.measure(Steps.model_validate_json(text))
            return [_epoch(Epoch.model_validate_json(text), ranks)]

        do_jobs(ranks, do)


class _Timed:
    """Trainers of all methods, kept from job to job: tables take a while to make."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._trainers: dict[tuple[str, str], Trainer] = {}
        self._batches: dict[str, list[Samples]] = {}
        self._done: Counter[int] = Counter()  # steps of each trainer
        self._adaptations: dict[int, Adaptation] = {}  # of trainers that adapt

    def measure(self, job: Steps) -> list[Answer]:
        key = job.model_dump_json(include={"data", "model", "batch"})
        source = open_source(job.data)
        if key not in self._batches:
            self._batches[key] = _first_batches(source, job.batch, self.ranks)
        batches = self._batches[key]
        for method in job.methods:
            if (key, method) not in self._trainers:
                self._trainers[key, method] = self._trainer(job, source, method)
            # what adapts needs steps for it, and what it is compared with sends as much as its model has learnt
            if "auto" in job.methods and method in ("auto", "laconic_pairwise"):
                self._settle(self._trainers[key, method], batches)
            self._trainers[key, method].embeddings.ledger.reset()
        rounds: dict[str, list[tuple[float, ...]]] = {method: [] for method in job.methods}
        for turn in range(job.rounds):
            for k in range(len(job.methods)):
                method = job.methods[(turn + k) % len(job.methods)]
                rounds[method].append(self._turn(self._trainers[key, method], batches, job.steps))
        return [
            _answer(method, self._trainers[key, method], self.ranks, round_ms=tuple(rounds[method]))
            for method in job.methods
        ]

    def _turn(self, trainer: Trainer, batches: list[Samples], steps: int) -> tuple[float, ...]:
        """Time some steps; the first one, which finds caches full of others' data, is not counted.

        Ids and rows of the next batch travel in every step, the last of a turn included: the next turn begins with it.
        """
        self.ranks.barrier()
        times = []
        for _ in range(steps + 1):
            step = self._done[id(trainer)]
            samples, following = batches[step % len(batches)], batches[(step + 1) % len(batches)].lookups
            start = perf_counter()
            trainer.step(samples, following)
            times.append(1e3 * (perf_counter() - start))
            self._done[id(trainer)] += 1
        return tuple(times[1:])

    def _settle(self, trainer: Trainer, batches: list[Samples]) -> None:
        """Let what adapts decide before the clock starts; the link may have changed since the last job."""
        adaptation = self._adaptations.get(id(trainer))
        trainer.embeddings.discard_prefetched()
        settling = _SETTLING if not self._done[id(trainer)] else 0
        for _ in range(settling):
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
        trainer = _trainer(job, source, "laconic_pairwise", self.ranks, policy=policy)
        self._adaptations[id(trainer)] = Adaptation(trainer, policy)
        return trainer


def _trainer(
    job: Steps | Epoch,
    source: Source,
    method: str,
    ranks: Ranks,
    seed: int = 0,
    policy: Policy | None = None,
) -> Trainer:
    chosen, recipe = find_method(method), job.recipe
    own = job.dense if isinstance(job, Epoch) else None
    settings = RunSettings(
        data=job.data,
        model=job.model,
        embeddings=chosen.embeddings(EmbeddingSettings(rate=recipe.rows)),
        dense=own or DenseSettings(rate=recipe.dense, send=chosen.dense),
        # what adapts leaves dense gradients alone where the link is fast, too
        exchange=ExchangeSettings(economy=policy is not None),
        train=TrainSettings(seed=seed, rate_warmup=recipe.warmup),
    )
    world = Joined(pairwise=chosen.pairwise)
    return Trainer(settings, source.schema, ranks, policy or chosen.policy(source.schema), world=world)


def _first_batches(source: Source, batch: int, ranks: Ranks) -> list[Samples]:
    parts = source.batches("train", global_batch=batch * ranks.count, rank=ranks.rank, ranks=ranks.count)
    return [samples for samples, _ in zip(parts, range(_BATCHES), strict=False)]


def _epoch(job: Epoch, ranks: Ranks) -> Answer:
    source = open_source(job.data)
    trainer = _trainer(job, source, job.method, ranks, job.seed)
    parts = source.batches(
        "train", global_batch=job.batch * ranks.count, rank=ranks.rank, ranks=ranks.count, epoch=job.seed
    )
    curve: list[dict[str, float | None]] = []
    trained_s, step, losses = 0.0, 0, 0.0
    ahead = next(parts, None)
    while ahead is not None and (job.steps is None or step < job.steps):
        samples, ahead = ahead, next(parts, None)
        step += 1
        pauses = bool(job.curve_every) and step % job.curve_every == 0
        last = ahead is None or step == job.steps
        start = perf_counter()
        loss, _ = trainer.step(samples, None if ahead is None or pauses or last else ahead.lookups)
        trained_s += perf_counter() - start
        losses += float(loss)
        if pauses:
            figures = evaluate(trainer, source, batch=4096)
            point = {"step": step, "seconds": trained_s, "samples": step * job.batch * ranks.count}
            curve.append({**point, "loss": losses / job.curve_every, "auc": figures.auc})
            losses = 0.0
    final: Evaluation | None = evaluate(trainer, source, batch=4096) if job.evaluate else None
    answer = _answer(
        job.method,
        trainer,
        ranks,
        seconds=trained_s,
        steps=step,
        auc=None if final is None else final.auc,
        log_loss=None if final is None else final.log_loss,
        curve=tuple(curve),
    )
    trainer.embeddings.close()
    return answer


def _answer(method: str, trainer: Trainer, ranks: Ranks, **figures: Any) -> Answer:
    ledger: Ledger = trainer.embeddings.ledger
    everyone = ranks.gather({row["direction"]: _figures(row) for row in ledger.summary()})
    sums = {d: [sum(part[d][i] for part in everyone) / ranks.count for i in range(3)] for d in everyone[0]}
    return Answer(
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


if __name__ == "__main__":
    main()
