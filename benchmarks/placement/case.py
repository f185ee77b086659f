"""One data set to place: where its samples come from, and what is looked up in its tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.data_sets import real_data_sets
from benchmarks.placement.jobs import Sends
from benchmarks.placement.sizes import BATCH, MODEL
from benchmarks.placement.taught import NO_RATE, copy_state, taught
from laconic.adapt.settings import ExchangeSettings
from laconic.cost.workload import RowCoding, Workload
from laconic.data import DataSettings, Source, SyntheticSettings, open_source
from laconic.lookups import Lookups
from laconic.plan.access.access import Access, access_load
from laconic.plan.access.profile import Profiler
from laconic.train.ranks import Ranks
from laconic.train.settings import DenseSettings, EmbeddingSettings, ModelSettings, RunSettings
from laconic.train.trainer import Trainer

__all__ = ["Case", "find_cases"]

_COUNTED = 1 << 19  # samples that frequencies are counted on, at most
_BLOCK = 1 << 14
_CODED_STEPS = 4  # that ratios of codecs are measured on


@dataclass(frozen=True)
class Case:
    """A data set by its name."""

    name: str
    data: DataSettings
    batch: int = BATCH
    """Samples of a rank in a step."""
    model: ModelSettings = MODEL

    @cached_property
    def source(self) -> Source:
        """The samples."""
        return open_source(self.data)

    @cached_property
    def access(self) -> Access:
        """What is looked up in training, counted on the first samples."""
        available = self.source.samples_in("train")
        total = available if available < _BLOCK else min(available, _COUNTED) // _BLOCK * _BLOCK
        tables = [(feature.name, feature.rows) for feature in self.source.schema.categorical]
        profiler = Profiler(tables, total, source=self.name)
        blocks = self.source.batches("train", global_batch=_BLOCK, rank=0, ranks=1)
        for samples in islice(blocks, -(-total // _BLOCK)):
            profiler.add(samples.lookups)
        return profiler.finish()

    @cached_property
    def taught(self) -> Trainer:
        """The model that all contenders begin with."""
        return taught(self.data, self.batch, self.model)

    def batches(self, ranks: int, count: int) -> Iterator[Lookups]:
        """Global batches of as many ranks."""
        parts = self.source.batches("train", global_batch=self.batch * ranks, rank=0, ranks=1)
        return (samples.lookups for samples in islice(parts, count))

    def workload(
        self, sends: Sends, *, dense_bytes: float, dense_codec_s: float = 0.0, hot_every: int = 1
    ) -> Workload:
        """Return all that a step sends; dense gradients take so many bytes and seconds."""
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
    """How much smaller each table's rows and gradients get in a few steps; bounds are the defaults."""
    schema = case.source.schema
    if kind == "exact":
        return {feature.name: (RowCoding(), RowCoding()) for feature in schema.categorical}
    settings = RunSettings(
        data=case.data,
        model=case.model,
        embeddings=EmbeddingSettings(sharding="row", rate=NO_RATE),
        dense=DenseSettings(rate=NO_RATE),
        exchange=ExchangeSettings(kind=kind),
    )
    trainer = Trainer(settings, schema, Ranks(0, 1, rehearsed=2))
    copy_state(case.taught, trainer)
    parts = case.source.batches("train", global_batch=2 * case.batch, rank=0, ranks=1)
    for samples in islice(parts, _CODED_STEPS):
        trainer.step(samples)
    accounts = trainer.embeddings.ledger.accounts
    found = {d: a.before_T / np.maximum(a.after_T, 1) for d, a in accounts.items()}
    both = zip(schema.categorical, found["forward"], found["backward"], strict=True)
    return {
        feature.name: (_coding(kind, forward), _coding(kind, backward)) for feature, forward, backward in both
    }


def _coding(kind: str, ratio: float) -> RowCoding:
    return RowCoding(ratio=max(float(ratio), 1.0), lossless=kind == "lossless")


def find_cases(data: Path | None, scratch: Path, *, every: bool) -> list[Case]:
    """Find real data sets, or the first of them, and generated data."""
    cases = [Case("generated", SyntheticSettings(kind="synthetic", cap=200_000, samples=1 << 19))]
    if data is None:
        return cases
    real = [Case(name, settings) for name, settings in real_data_sets(data, scratch).items()]
    return [*(real if every else real[:1]), *cases]
