"""The models that are served: trained shortly on real sets, and a large one that is only drawn.

Shape legend: ``B`` samples, ``T`` tables, ``F`` dense features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from laconic.bench.serving.steps import Steps
from laconic.bench.training.real_data import real_data_sets
from laconic.data import DataSettings, Samples, SyntheticSettings, open_source
from laconic.quant import Features, ModelShape, TrainedModel
from laconic.train.load_trained import trained_features
from laconic.train.ranks import Ranks
from laconic.train.settings import ModelSettings, RunSettings, TrainSettings
from laconic.train.trainer import Trainer

__all__ = ["BATCH", "Case", "Part", "data_sets", "large_case", "reference_case", "trained_case"]

BATCH = 256
"""Samples of a part: what is scored at once where throughput counts."""

_GENERATED = SyntheticSettings(kind="synthetic", cap=20_000, samples=1 << 19)
_LARGE = SyntheticSettings(kind="synthetic", cap=1_600_000)
_REFERENCE = SyntheticSettings(kind="synthetic", cap=245_000)  # a fifth of the rows
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


def data_sets(data: Path | None, scratch: Path) -> Mapping[str, DataSettings]:
    """Return what models are trained on, by name; ``scratch`` holds what is written for that."""
    return {"generated": _GENERATED} if data is None else real_data_sets(data, scratch)


def trained_case(name: str, data: DataSettings, most: int | None, parts: int, steps: Steps) -> Case:
    """Train for an epoch, or for so many steps at most."""
    steps.begin(f"{name}: training")
    settings = RunSettings(
        data=data, model=ModelSettings(dim=64), train=TrainSettings(batch=1024, rate_warmup=50)
    )
    source = open_source(data)
    trainer = Trainer(settings, source.schema, Ranks(0, 1))
    total = min(-(-source.samples_in("train") // 1024), most or 1 << 40)
    batches = source.batches("train", global_batch=1024, rank=0, ranks=1, epoch=0, start=0)
    for step, samples in enumerate(islice(batches, total)):
        trainer.step(samples)
        steps.within(step + 1, total)
    features = trained_features(settings, source)
    tables = {
        feature.name: trainer.embeddings.table_shard(feature.name)[1].clone() for feature in features.tables
    }
    state = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    model = TrainedModel(_shape(settings, features), features, tables, state)
    evaluation = source.batches("eval", global_batch=BATCH, rank=0, ranks=1)
    return Case(name, model, _parts(evaluation, parts), labelled=True)


def large_case(parts: int, steps: Steps) -> Case:
    """Draw a model whose tables are far larger than any cache."""
    return _drawn_case("large", _LARGE, parts, steps)


def reference_case(parts: int, steps: Steps) -> Case:
    """Draw one with the same layers and a fifth of the rows, which a larger model is to replace."""
    return _drawn_case("reference", _REFERENCE, parts, steps)


def _drawn_case(name: str, data: SyntheticSettings, parts: int, steps: Steps) -> Case:
    steps.begin(f"{name}: drawing tables")
    settings = RunSettings(data=data, model=_PAPER)
    source = open_source(data)
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
        f"{name}, {sum(source.schema.rows) / 1e6:.0f} M rows",
        model,
        _parts(evaluation, parts),
        labelled=False,
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
