"""One data set to place: where its samples come from, and what is looked up in its tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from laconic.bench.training.real_data import real_data_sets
from laconic.data import DataSettings, Source, SyntheticSettings, open_source
from laconic.lookups import Lookups
from laconic.placement.access import Access
from laconic.placement.access_load import access_load
from laconic.placement.profile import Profiler
from laconic.placement.workload import Coding, Workload
from laconic.train.ranks import Ranks
from laconic.train.settings import EmbeddingSettings, ModelSettings, RunSettings
from laconic.train.trainer import Trainer

__all__ = ["BATCH", "MODEL", "Case", "find_cases"]

BATCH = 1024
MODEL = ModelSettings(dim=64, bottom=(512, 256), top=(512, 512, 256))
_COUNTED = 1 << 19  # samples that frequencies are counted on, at most
_BLOCK = 1 << 14
_CODED_STEPS = 4  # that ratios of codecs are measured on


@dataclass(frozen=True)
class Case:
    """A data set by its name."""

    name: str
    data: DataSettings

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

    def batches(self, ranks: int, count: int) -> Iterator[Lookups]:
        """Global batches of as many ranks."""
        parts = self.source.batches("train", global_batch=BATCH * ranks, rank=0, ranks=1)
        return (samples.lookups for samples in islice(parts, count))

    def workload(self, *, coded: bool, dense_bytes: float, hot_every: int = 1) -> Workload:
        """Return all that a step sends; dense gradients take so many bytes."""
        exact = (Coding(), Coding())
        tables = tuple(
            access_load(table, *(self.ratios[table.name] if coded else exact)) for table in self.access.tables
        )
        return Workload(
            tables=tables, batch=BATCH, dim=MODEL.dim, dense_bytes=dense_bytes, hot_every=hot_every
        )

    @cached_property
    def ratios(self) -> dict[str, tuple[Coding, Coding]]:
        """How much smaller Laconic's default bounds make each table's rows and gradients, in the first steps."""
        settings = RunSettings(data=self.data, model=MODEL, embeddings=EmbeddingSettings(sharding="row"))
        trainer = Trainer(settings, self.source.schema, Ranks(0, 1), rehearsed_ranks=2)
        parts = self.source.batches("train", global_batch=2 * BATCH, rank=0, ranks=1)
        for samples in islice(parts, _CODED_STEPS):
            trainer.step(samples)
        accounts = trainer.embeddings.ledger.accounts
        found = {d: a.before_T / np.maximum(a.after_T, 1) for d, a in accounts.items()}
        names = [feature.name for feature in self.source.schema.categorical]
        return {
            name: (Coding(ratio=max(float(forward), 1.0)), Coding(ratio=max(float(backward), 1.0)))
            for name, forward, backward in zip(names, found["forward"], found["backward"], strict=True)
        }


def find_cases(data: Path | None, scratch: Path, *, every: bool) -> list[Case]:
    """Find real data sets, or the first of them, and generated data."""
    cases = [Case("generated", SyntheticSettings(kind="synthetic", cap=200_000, samples=1 << 19))]
    if data is None:
        return cases
    real = [Case(name, settings) for name, settings in real_data_sets(data, scratch).items()]
    return [*(real if every else real[:1]), *cases]
