"""The models that are served: trained shortly on real sets, and a large one that is only drawn.

Shape legend: ``B`` samples, ``T`` tables, ``F`` dense features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from laconic.bench.training.real_data import real_data_sets
from laconic.data import DataSettings, Samples, SyntheticSettings, open_source
from laconic.quant import Features, ModelShape, TrainedModel
from laconic.train.load_trained import trained_features
from laconic.train.ranks import Ranks
from laconic.train.settings import ModelSettings, RunSettings, TrainSettings
from laconic.train.trainer import Trainer

__all__ = ["Case", "Part", "cases"]

BATCH = 256
"""Samples of a part: what is scored at once where throughput counts."""

_GENERATED = SyntheticSettings(kind="synthetic", cap=20_000, samples=1 << 19)
_LARGE = SyntheticSettings(kind="synthetic", cap=1_300_000)
_PAPER = ModelSettings(dim=64, bottom=(512, 256), top=(512, 512, 256))


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A batch as engines take it."""

    dense_BF: Tensor
    ids_TB: Tensor
    label_B: Tensor

    def first(self, batch: int) -> Part:
        """Return the first samples of it."""
        return Part(
            self.dense_BF[:batch].contiguous(),
            self.ids_TB[:, :batch].contiguous(),
            self.label_B[:batch].contiguous(),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A model, and batches of samples that it was not trained on."""

    name: str
    trained: TrainedModel
    parts: list[Part]

    labelled: bool
    """Whether the model has learnt something: otherwise accuracy means nothing."""


def cases(
    data: Path | None, scratch: Path, *, full: bool, parts: int, say: Callable[[str], None]
) -> Iterator[Case]:
    """One after the other: they are large."""
    sets: dict[str, DataSettings] = {"generated": _GENERATED}
    if data is not None:
        sets = dict(real_data_sets(data, scratch))
    for name, settings in sets.items():
        yield _trained_case(name, settings, None if full else 300, parts, say)
    yield _large_case(parts, say)


def _trained_case(
    name: str, data: DataSettings, steps: int | None, parts: int, say: Callable[[str], None]
) -> Case:
    settings = RunSettings(
        data=data, model=ModelSettings(dim=64), train=TrainSettings(batch=1024, rate_warmup=50)
    )
    source = open_source(data)
    trainer = Trainer(settings, source.schema, Ranks(0, 1))
    total = min(-(-source.samples_in("train") // 1024), steps or 1 << 40)
    batches = source.batches("train", global_batch=1024, rank=0, ranks=1, epoch=0, start=0)
    for step, samples in enumerate(islice(batches, total)):
        if step % 20 == 0:
            say(f"{name}: training, step {step} of {total}")
        trainer.step(samples)
    features = trained_features(settings, source)
    tables = {
        feature.name: trainer.embeddings.table_shard(feature.name)[1].clone() for feature in features.tables
    }
    state = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    model = TrainedModel(_shape(settings, features), features, tables, state)
    evaluation = source.batches("eval", global_batch=BATCH, rank=0, ranks=1)
    return Case(name, model, _parts(evaluation, parts), labelled=True)


def _large_case(parts: int, say: Callable[[str], None]) -> Case:
    say("large: drawing tables")
    settings = RunSettings(data=_LARGE, model=_PAPER)
    source = open_source(_LARGE)
    features = trained_features(settings, source)
    generator = torch.Generator().manual_seed(0)
    tables = {
        feature.name: torch.empty(feature.rows, 64).normal_(0, 0.05, generator=generator)
        for feature in features.tables
    }
    torch.manual_seed(0)
    shape = _shape(settings, features)
    model = TrainedModel(shape, features, tables, shape.build().state_dict())
    evaluation = source.batches("eval", global_batch=BATCH, rank=0, ranks=1)
    return Case(
        f"large, {sum(source.schema.rows) / 1e6:.0f} M rows", model, _parts(evaluation, parts), labelled=False
    )


def _shape(settings: RunSettings, features: Features) -> ModelShape:
    return ModelShape(
        **settings.model.model_dump(),
        dense=len(features.dense),
        tables=len(features.tables),
        pooling=settings.embeddings.pooling,
    )


def _parts(batches: Iterator[Samples], count: int) -> list[Part]:
    whole = (samples for samples in batches if len(samples) == BATCH)
    return [
        Part(
            samples.dense_BF.contiguous(),
            samples.lookups.ids_L.view(samples.lookups.tables, BATCH),
            samples.label_B,
        )
        for samples in islice(whole, count)
    ]
