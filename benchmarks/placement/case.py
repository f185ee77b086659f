"""One data set to place: samples, lookups of its tables, plans to compare, rows of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.harness import real_data_sets
from benchmarks.placement.worker import NO_RATE, Contender, Sends, copy_state, pretrained
from laconic.adapt.settings import CompressionSettings, GradientCodec, RowCodec
from laconic.cost.load import Place
from laconic.cost.workload import RowCoding, Workload
from laconic.data import DataSettings, Source, SyntheticSettings, open_source
from laconic.lookups import Lookups
from laconic.plan.access.access import Access, access_load, hottest_ids
from laconic.plan.access.profile import Profiler
from laconic.plan.explanation import explain, plan_of
from laconic.plan.plan_file import write_plan
from laconic.plan.solve.baselines import BASELINES
from laconic.plan.solve.planner import Planned, plan_tables
from laconic.plan.solve.problem import Problem
from laconic.train.ranks import Ranks
from laconic.train.settings import DenseSettings, EmbeddingSettings, ModelSettings, RunSettings
from laconic.train.trainer import Trainer

__all__ = ["Case", "Chosen", "Row", "choose_places", "find_cases", "write_places"]

_MODEL = ModelSettings(dim=64, bottom=(512, 256), top=(512, 512, 256))
_COUNTED = 1 << 19  # samples that lookups are counted on, at most
_BLOCK = 1 << 14
_CODED_STEPS = 4  # that ratios of codecs are measured on


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What was predicted and measured of one placement in one setting; None: not of this kind."""

    kind: Literal["bytes", "time", "simulated"]
    data: str
    hosts: int
    rate_mbit: float | None = None
    """Rate of every link, in each direction."""
    placement: str
    """Name of the placement; where simulated, the methods that are on."""
    codec: str
    """``plain``: float32 and raw ids; ``exact``: the same bits, coded where that is predicted to
    pay, and coded ids; ``coded``: within Laconic's bounds."""
    counted: float | None = None
    """Share of the epoch that lookups were counted on, before the batches that were sent; None:
    both begin with it."""
    direction: str | None = None
    """``ids``, ``forward``, ``backward``; or ``worst table``: rows and gradients of the one that
    errs most."""
    predicted_bytes: float | None = None
    """Bytes sent per step and rank, by prediction."""
    measured_bytes: float | None = None
    predicted_ms: float | None = None
    """Milliseconds of a step."""
    measured_ms: float | None = None
    """Milliseconds of a step as measured: the lower quartile of turns."""
    turn_ms: tuple[float, ...] | None = None
    """Mean step of each turn."""
    samples_per_s: float | None = None
    """Samples of all hosts, as measured."""
    planned_over: tuple[float, float, float] | None = None
    """Step of the plan with the same codec over this one: mean of ratios paired by turn, and its 95
    % interval."""


@dataclass(frozen=True)
class Case:
    """A data set to place: where its samples come from, and what is looked up in its tables."""

    name: str
    data: DataSettings
    batch: int = 1024
    """Samples of a rank in a step."""
    model: ModelSettings = _MODEL
    counted: float | None = None
    """Share of the epoch that lookups are counted on, and behind which batches are taken; None:
    both begin with it."""

    @cached_property
    def source(self) -> Source:
        """The samples."""
        return open_source(self.data)

    @property
    def _start(self) -> int:
        return int((self.counted or 0.0) * self.source.samples_in("train"))

    @cached_property
    def access(self) -> Access:
        """Access statistics of training, counted on the first samples."""
        available = self._start or self.source.samples_in("train")
        total = available if available < _BLOCK else min(available, _COUNTED) // _BLOCK * _BLOCK
        tables = [(feature.name, feature.rows) for feature in self.source.schema.categorical]
        profiler = Profiler(tables, total, source=self.name)
        block = min(total, _BLOCK)
        blocks = self.source.batches("train", global_batch=block, rank=0, ranks=1)
        for samples in islice(blocks, -(-total // block)):
            profiler.add(samples.lookups)
        return profiler.finish()

    @cached_property
    def pretrained(self) -> Trainer:
        """The model that all contenders begin with."""
        return pretrained(self.data, self.batch, self.model)

    def batches(self, ranks: int, count: int) -> Iterator[Lookups]:
        """Yield whole global batches of ``ranks`` ranks."""
        size = self.batch * ranks
        parts = self.source.batches("train", global_batch=size, rank=0, ranks=1, start=self._start)
        return (part.lookups for part in islice(parts, count) if part.lookups.samples == size)

    def workload(
        self, sends: Sends, *, dense_bytes: float, dense_codec_s: float = 0.0, hot_every: int = 1
    ) -> Workload:
        """Return the workload of a step, with these bytes and seconds of dense gradients."""
        codings = _codings(self, sends.rows)
        return Workload(
            tables=tuple(access_load(table, *codings[table.name]) for table in self.access.tables),
            batch=self.batch,
            dim=self.model.dim,
            dense_bytes=dense_bytes,
            dense_codec_s=dense_codec_s,
            hot_every=hot_every,
        )


@cache
def _codings(
    case: Case, kind: Literal["exact", "lossless", "bounded"]
) -> dict[str, tuple[RowCoding, RowCoding]]:
    """Return the ratios of each table's rows and gradients in a few steps with default bounds."""
    schema = case.source.schema
    names = [feature.name for feature in schema.categorical]
    if kind == "exact":
        return dict.fromkeys(names, (RowCoding(), RowCoding()))
    settings = RunSettings(
        data=case.data,
        model=case.model,
        embeddings=EmbeddingSettings(sharding="row", lr=NO_RATE),
        dense=DenseSettings(lr=NO_RATE),
        compression=CompressionSettings(rows=RowCodec(method=kind), gradients=GradientCodec(method=kind)),
    )
    trainer = Trainer(settings, schema, Ranks(0, 1, rehearsed=2))
    copy_state(case.pretrained, trainer)
    parts = case.source.batches("train", global_batch=2 * case.batch, rank=0, ranks=1)
    for samples in islice(parts, _CODED_STEPS):
        trainer.step(samples)
    accounts = trainer.rows.ledger.accounts
    ratios = [accounts[d].before_T / np.maximum(accounts[d].after_T, 1) for d in ("forward", "backward")]
    codings = [
        [RowCoding(ratio=max(float(r), 1.0), lossless=kind == "lossless") for r in each] for each in ratios
    ]
    return dict(zip(names, zip(*codings, strict=True), strict=True))


def find_cases(data: Path | None, scratch: Path) -> list[Case]:
    """Find real data sets, and generated data."""
    generated = Case("generated", SyntheticSettings(kind="synthetic", cap=200_000, samples=1 << 19))
    real = {} if data is None else real_data_sets(data, scratch)
    return [*(Case(name, settings) for name, settings in real.items()), generated]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Places of all tables, and what they should take."""

    contender: Contender
    places: tuple[Place, ...]
    predicted_ms: float
    names: tuple[str, ...]
    """Names of all who would choose these places."""
    digest: str
    """Digest of places and how they are used; plans that differ only in what is predicted have the
    same."""


def choose_places(case: Case, problem: Problem, contender: Contender, folder: Path) -> list[Chosen]:
    """Write a plan file for each different place; those that lack memory are left out.

    ``contender`` says what is sent; the planner comes first, and then what others would do.
    """
    best = plan_tables(problem)
    found = {(best.places, best.look_ahead): (best, ["planned"])}
    for name, baseline in BASELINES.items():
        places = tuple(baseline(problem))
        if problem.shortage(places) <= 0:
            time = problem.step(places)
            plan = Planned(places, time, time.step_s)
            found.setdefault((places, False), (plan, []))[1].append(name)
    return [write_places(case, problem, contender, folder, plan, names) for plan, names in found.values()]


def write_places(
    case: Case, problem: Problem, contender: Contender, folder: Path, planned: Planned, names: Sequence[str]
) -> Chosen:
    """Write the plan file of a place; the first of ``names`` is its own."""
    places, path = planned.places, folder / f"{names[0]}.toml"
    hot = {
        table.name: hottest_ids(case.access.table(table.name), place.hot)
        for table, place in zip(problem.workload.tables, places, strict=True)
        if place.hot
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_plan(path, plan_of(problem, planned, explain(problem, places), {}), hot, {})
    content = repr((places, planned.look_ahead, problem.workload.hot_every)).encode()
    return Chosen(
        contender.model_copy(update={"placement": names[0], "plan": path}),
        places,
        1e3 * planned.time.step_s,
        tuple(names),
        blake2b(content, digest_size=4).hexdigest(),
    )
