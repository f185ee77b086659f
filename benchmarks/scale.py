"""``python -m benchmarks scale``: what a rank sends and computes in a step as ranks become many.

Real ranks run on one machine as far as it carries them. Beyond, one rank stands for all: its wire
echoes what it sends, so that each other rank seems to ask of it, answer and send back what it asks,
answers and sends itself. Routing, codecs and messages are those of that many ranks; connections are
not there. Where both are measured, they should agree.

A table has the lookups of its cardinality in Criteo Terabyte, and at least a row for each rank.
*Plain* are pooled float32 vectors, their gradients and raw ids of eight bytes. Beyond real ranks it
is computed: everything but a rank's own share travels. *Simulated* is what ``laconic simulate``
says of the same tables and Zipf's law; it takes rows for normal ones.

Real ranks run as ``python -m benchmarks.scale JOBS ANSWERS``.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from time import process_time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table as ConsoleTable
from torch import nn

from benchmarks.harness import figures_table, grouped
from benchmarks.workers import WorkerPool, serve
from laconic.adapt.compression import Compression
from laconic.config import Settings
from laconic.data import Samples, SyntheticSettings, open_source
from laconic.exchange.ranks.transport import Message, Transport
from laconic.exchange.ranks.world import GroupWorld, World
from laconic.exchange.tables.optimizer import RowwiseAdagrad
from laconic.exchange.tables.table import Table
from laconic.nn.sharded_embeddings import ShardedEmbeddings
from laconic.plan.scenario import Scenario, model_of
from laconic.plan.simulate import Fabric, Methods, ModelLoad, step_cost
from laconic.train.dense import make_model
from laconic.train.ranks import Ranks, process_group
from laconic.train.settings import ModelSettings

__all__ = ["EchoWorld", "Scale", "ScaleFigures", "measure_echo", "render", "run_scale_benchmark"]

Ints = NDArray[np.int64]
Say = Callable[[str], None]
DIM, CAP = 64, 1 << 20
METHODS = ("plain", "laconic")
_COMPRESSIONS = {
    "plain": Compression.exact(),
    "exact": Compression(rows=None, gradients=None),
    "laconic": Compression(),
}
_ANY_LINK = Fabric(bytes_per_s=1.0, latency_s=0.0, message_s=0.0)
_SETTLING, _STEPS = 16, 8  # ranks agree on scales after 1, 2, 4, 8, 16 and 32 steps


@dataclass(frozen=True, slots=True)
class EchoWorld:
    """The first of many ranks, to whom the others send what it sends them."""

    ranks: int
    rank: int = 0
    all_remote: bool = False

    def transport(self, name: str) -> Transport:
        """Open a way to the echo."""
        return _Echo(name, self.rank, self.ranks)


class _Echo(Transport):
    """Returns heads and messages to who sent them, as bytes of ranks that are like this one."""

    def __init__(self, name: str, rank: int, ranks: int) -> None:
        super().__init__(name, rank, ranks)
        self._messages: list[Message] = []

    def _send(self, messages: tuple[Message, ...]) -> None:
        self._messages = list(messages)

    def _receive(self, out: NDArray[Any], sizes_N: Ints) -> None:
        self._fill(out, self._messages.pop(0), sizes_N)

    def _begin_swap(self, out: NDArray[Any], message: Message, sizes_N: Ints) -> Callable[[], None]:
        return partial(self._fill, out, message, sizes_N)

    def _fill(self, out: NDArray[Any], message: Message, sizes_N: Ints) -> None:
        parts = np.split(out, np.cumsum(sizes_N)[:-1])
        for rank in range(self.ranks):
            if rank != self.rank:
                parts[rank][:] = message.part(rank)


class Scale(Settings):
    """Train some steps with the same number of samples on every rank, and measure the last."""

    ranks: int
    tables: int
    batch: int
    method: str
    """``plain``, ``laconic``, or ``exact``: distinct rows and coded ids, but rows in float32."""
    replicate_below: int = 0
    """Tables of fewer rows are on every rank."""
    cap: int = CAP
    """Rows of the largest tables."""


class ScaleFigures(Settings):
    """What rank 0 measured in a step, on average."""

    ranks: int
    tables: int
    batch: int
    method: str
    replicate_below: int
    cap: int
    real: bool
    """Whether every rank was there; else one, with an echo."""
    bytes: float
    """Bytes that a rank sends in a step: rows, gradients, ids and what announces them."""
    announcement_bytes: float
    """Those of them that announce sizes."""
    simulated_bytes: float | None = None
    """What the simulator says that ``bytes`` are; None: of plain training, or with replicas."""
    simulated_announcement_bytes: float | None = None
    cpu_ms: float | None
    descriptors: int | None
    """Files and sockets of the last rank; rank 0 has more, where it serves the store of torch."""
    memory_mb: float | None
    """Largest memory of its process."""


def run_scale_benchmark(
    *, real: Sequence[int], echoed: Sequence[int], tables: int, batch: int, replicate_below: int, say: Say
) -> list[ScaleFigures]:
    """Measure ``plain`` and ``laconic`` on real ranks and with an echo."""
    found = []
    case = {"tables": tables, "batch": batch, "replicate_below": replicate_below}
    for ranks in real:
        say(f"{ranks} real ranks")
        with WorkerPool("benchmarks.scale", ranks) as pool:
            for method in METHODS:
                answers = pool.ask(Scale(ranks=ranks, method=method, **case), ScaleFigures)
                found += [_with_simulated(answer) for answer in answers]
    for ranks in echoed:
        say(f"{ranks} ranks, one of them real")
        found += [_plain(Scale(ranks=ranks, method="plain", **case))]
        found += [measure_echo(Scale(ranks=ranks, method="laconic", **case))]
    return found


def measure_echo(job: Scale) -> ScaleFigures:
    """Measure one rank whose wire echoes what it sends."""
    return _with_simulated(_measure(job, EchoWorld(job.ranks), real=False))


def _with_simulated(row: ScaleFigures) -> ScaleFigures:
    """Add what the simulator says of ids, rows and gradients."""
    if row.method == "plain" or row.replicate_below:
        return row
    methods = Methods(dedup=True, bounded=row.method == "laconic")
    cost = step_cost(_simulated_model(row.tables, row.batch, row.cap), _ANY_LINK, row.ranks, methods)
    nbytes = cost.ids_bytes + cost.rows_bytes
    told = {"simulated_bytes": nbytes, "simulated_announcement_bytes": cost.announced_bytes}
    return row.model_copy(update=told)


@cache
def _simulated_model(tables: int, batch: int, cap: int) -> ModelLoad:
    rows = tuple(min(rows, cap) for rows in _cardinalities(tables))
    scenario = Scenario(rows=rows, zipf=SyntheticSettings().zipf, dim=DIM, batch=batch)
    return model_of(scenario, rows)


def _plain(job: Scale) -> ScaleFigures:
    """Return what pooled float32 vectors, gradients and raw ids take; a rank's own stay there."""
    nbytes = job.batch * job.tables * (2 * 4 * DIM + 8) * (job.ranks - 1) / job.ranks
    return _figures(job, real=False, nbytes=nbytes, announced=0.0)


def _figures(job: Scale, *, real: bool, nbytes: float, announced: float, **more: Any) -> ScaleFigures:
    measured = {"cpu_ms": None, "descriptors": None, "memory_mb": None} | more
    return ScaleFigures(**job.model_dump(), real=real, bytes=nbytes, announcement_bytes=announced, **measured)


def _measure(job: Scale, world: World, *, real: bool) -> ScaleFigures:
    """Train a DLRM with row-wise Adagrad, whose dense gradients stay where they are."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = SyntheticSettings(rows=_cardinalities(job.tables), cap=job.cap, samples=1 << 22)
    source = open_source(data)
    embeddings = ShardedEmbeddings(
        [
            _table(feature.name, feature.rows, job, plain=job.method == "plain", many=not real)
            for feature in source.schema.categorical
        ],
        _COMPRESSIONS[job.method],
        optimizer=RowwiseAdagrad(0.02),
        world=world,
    )
    model = make_model(ModelSettings(dim=DIM, bottom=(64,), top=(64,)), source.schema)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    ranks = world.ranks if real else 1
    batches: Iterator[Samples] = source.batches(
        "train", global_batch=job.batch * ranks, rank=world.rank, ranks=ranks, epoch=0
    )
    (engine,) = embeddings.engines
    start = 0.0
    for step, samples in enumerate(islice(batches, _SETTLING + _STEPS)):
        if step == _SETTLING:
            engine.ledger.reset()
            start = process_time()
        pending = embeddings.start(samples.lookups)
        logits_B = model(samples.dense_BF, pending.wait())
        loss = nn.functional.binary_cross_entropy_with_logits(logits_B, samples.label_B, reduction="sum")
        optimizer.zero_grad()
        (loss / pending.global_samples).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        embeddings.optimizer.step()
    engine.pipeline.settle()
    cpu_ms = 1e3 * (process_time() - start) / _STEPS
    accounts = engine.ledger.accounts.values()
    nbytes, announced = (sum(getattr(each, what) for each in accounts) for what in ("sent", "sizes"))
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    descriptors = len(os.listdir("/proc/self/fd")) if real else None
    embeddings.close()
    return _figures(
        job,
        real=real,
        nbytes=nbytes / _STEPS,
        announced=announced / _STEPS,
        cpu_ms=cpu_ms,
        descriptors=descriptors,
        memory_mb=memory_mb,
    )


def _cardinalities(tables: int) -> tuple[int, ...]:
    """Return Criteo Terabyte's, again and again."""
    rows = SyntheticSettings().rows
    return tuple(rows[t % len(rows)] for t in range(tables))


def _table(name: str, rows: int, job: Scale, *, plain: bool, many: bool) -> Table:
    """Return a table; where one rank stands for all, every rank has as many of its rows."""
    replicated = rows < job.replicate_below
    rows = -(-rows // job.ranks) * job.ranks if many else rows
    if replicated:
        return Table(name, rows, DIM, sharding="replicated")
    return (
        Table(name, rows, DIM, sharding="table", send="pooled")
        if plain
        else Table(name, rows, DIM, sharding="row")
    )


def render(rows: Sequence[ScaleFigures]) -> RenderableType:
    """Make a table for each kind of job."""
    groups = grouped(rows, lambda row: (row.tables, row.batch, row.replicate_below))
    return Group(*(_table_of(key, here) for key, here in groups.items()))


def _table_of(key: tuple[int, int, int], rows: Sequence[ScaleFigures]) -> ConsoleTable:
    tables, batch, below = key
    title = f"{tables} tables of dimension {DIM}, {batch} samples a rank"
    table = figures_table(
        title + (f", tables below {below} rows on every rank" if below else ""),
        *("ranks", "real", "plain", "Laconic", "fewer bytes", "simulated", "of them announce"),
        *("CPU a step", "a peer", "descriptors", "memory"),
    )
    pairs = grouped(rows, lambda row: (row.ranks, row.real))
    for (ranks, real), pair in pairs.items():
        plain, ours = ({row.method: row for row in pair}[method] for method in METHODS)
        table.add_row(
            *(str(ranks), "yes" if real else "echo"),
            *(f"{row.bytes / 1e3:,.0f} kB" for row in (plain, ours)),
            f"{plain.bytes / ours.bytes:.2f}x",
            "" if ours.simulated_bytes is None else f"{ours.simulated_bytes / ours.bytes - 1:+.0%}",
            f"{ours.announcement_bytes / ours.bytes:.1%}",
            "" if ours.cpu_ms is None else f"{ours.cpu_ms:.0f} ms",
            "" if ours.cpu_ms is None else f"{ours.cpu_ms / max(ranks - 1, 1):.2f} ms",
            "" if ours.descriptors is None else str(ours.descriptors),
            "" if ours.memory_mb is None else f"{ours.memory_mb:,.0f} MB",
        )
    return table


def _real(ranks: Ranks, job: Scale) -> list[ScaleFigures]:
    figures = _measure(job, GroupWorld(), real=True)
    return [figures.model_copy(update={"descriptors": ranks.gather(figures.descriptors)[-1]})]


if __name__ == "__main__":
    with process_group(timeout_s=600) as ranks:
        serve(ranks, {Scale: partial(_real, ranks)})
