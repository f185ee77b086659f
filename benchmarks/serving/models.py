"""The models that are served: trained shortly, on real sets and on generated samples with ten million rows.

Laconic serves them in the precisions that ``laconic quantize --budget 0.03%`` finds. NE is to change by 0.05 % at most,
on samples that the search does not have. Those have noise of their own, by calculation 0.015 % for a combination that
harms by 0.03 %, so the search is told to leave room for it.

Of the large one's tables, rows that no sample of its training looked up have their first values still, as they would
after any training that ends: they take as much room, and lookups of unseen samples find them as often as they occur.

Shape legend: ``B`` samples, ``T`` tables, ``F`` dense features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from benchmarks.training.benchmark import TERABYTE
from laconic.data import DataSettings, Samples, Source, SyntheticSettings, open_source
from laconic.quantize.formats import Artifact, Features, ModelShape, TrainedModel
from laconic.quantize.search.run import SearchSettings, measurement_file, search_run
from laconic.quantize.search.workbench import Workbench, make_workbench, select
from laconic.train.load_trained import trained_features
from laconic.train.ranks import Ranks
from laconic.train.settings import ModelSettings, RunSettings, TrainSettings
from laconic.train.trainer import Trainer

BATCH = 256
"""Samples of a part: what is scored at once where throughput counts."""

GENERATED = SyntheticSettings(kind="synthetic", cap=20_000, samples=1 << 19, eval_samples=1 << 17)
_LARGE = SyntheticSettings(kind="synthetic", cap=1_600_000, eval_samples=1 << 18)
REFERENCE = SyntheticSettings(kind="synthetic", cap=245_000)  # a fifth of the rows
_LEARNING = TrainSettings(batch=1024, rate_warmup=50)
_SEARCH = SearchSettings(budget=0.0003, objective="size", probe=4096, batch=BATCH)
"""As the command's, but for a smaller probe: there are three models to search in a few minutes."""


Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class EngineBatch:
    """A batch as engines take it."""

    dense_BF: Tensor
    ids_TB: Tensor
    label_B: Tensor

    def first(self, batch: int) -> EngineBatch:
        """Return the first samples of it."""
        return EngineBatch(
            self.dense_BF[:batch].contiguous(),
            self.ids_TB[:, :batch].contiguous(),
            self.label_B[:batch].contiguous(),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ServedModel:
    """A model, and batches of samples that neither its training nor the search of its precisions has seen."""

    name: str
    trained: TrainedModel
    parts: list[EngineBatch]
    artifact: Artifact | None = None
    """The model in the precisions that a search chose; None before it."""


def run_settings(data: DataSettings) -> RunSettings:
    """Say how a model of the usual size is trained."""
    return RunSettings(data=data, model=ModelSettings(dim=64), train=_LEARNING)


def large_settings() -> RunSettings:
    """Say the same of one with layers of a paper's size, and tables far larger than any cache."""
    return RunSettings(data=_LARGE, model=TERABYTE, train=_LEARNING)


def trained_case(
    name: str, settings: RunSettings, most: int | None, say: Say
) -> tuple[ServedModel, Workbench]:
    """Train for an epoch, or for so many steps at most; half of the samples held out are for a search."""
    say(f"{name}: opening data, drawing first weights")
    source = open_source(settings.data)
    trainer = Trainer(settings, source.schema, Ranks(0, 1))
    batch = settings.train.batch
    total = min(-(-source.samples_in("train") // batch), most or 1 << 40)
    batches = source.batches("train", global_batch=batch, rank=0, ranks=1, epoch=0, start=0)
    for step, samples in enumerate(islice(batches, total)):
        trainer.step(samples)
        say(f"{name}: training, step {step + 1} of {total}")
    features, vocabularies = trained_features(source)
    tables = {feature.name: trainer.embeddings.table_shard(feature.name)[1] for feature in features.tables}
    state = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    trainer.embeddings.close()
    model = TrainedModel(_shape(settings, features), features, tables, state, vocabularies)
    parts: list[EngineBatch] = []
    bench = make_workbench(
        model,
        source,
        most=source.samples_in("eval") // 2,
        seed=0,
        progress=lambda what, done, total: say(f"{name}: {what}, {done} of {total}"),
        left=lambda samples: parts.extend(_parts(samples)),
    )
    return ServedModel(_title(name, source), model, parts), bench


def reference_case(parts: int, data: SyntheticSettings = REFERENCE) -> ServedModel:
    """Draw a model with the large one's layers and a fifth of its rows, without training it.

    A larger model is to replace it. Its accuracy means nothing.
    """
    settings = RunSettings(data=data, model=TERABYTE)
    source = open_source(data)
    features, _ = trained_features(source)
    generator = torch.Generator().manual_seed(0)
    tables = {
        feature.name: torch.empty(feature.rows, 64).normal_(0, 0.05, generator=generator)
        for feature in features.tables
    }
    torch.manual_seed(0)
    shape = _shape(settings, features)
    model = TrainedModel(shape, features, tables, shape.build().state_dict())
    evaluation = source.batches("eval", global_batch=BATCH, rank=0, ranks=1)
    batches = [part for samples in islice(evaluation, parts) for part in _parts(samples)]
    return ServedModel("reference", model, batches)


def _shape(settings: RunSettings, features: Features) -> ModelShape:
    return ModelShape(
        **settings.model.model_dump(),
        dense=len(features.dense),
        tables=len(features.tables),
        pooling=settings.embeddings.pooling,
    )


def _title(name: str, source: Source) -> str:
    rows = sum(source.schema.rows)
    return f"{name}, {rows / 1e6:.0f} M rows" if rows >= 10_000_000 else name


def _parts(samples: Samples) -> Iterator[EngineBatch]:
    """Cut samples with one id a table into parts; fewer than a part at the end are dropped."""
    for begin in range(0, len(samples) - BATCH + 1, BATCH):
        some = select(samples, torch.arange(begin, begin + BATCH))
        ids_TB = some.lookups.ids_L.view(some.lookups.tables, BATCH)
        yield EngineBatch(some.dense_BF.contiguous(), ids_TB, some.label_B)


def with_precisions(case: ServedModel, bench: Workbench, say: Say) -> ServedModel:
    """Search the precisions of a model on samples that the case does not have."""

    def tell(what: str, done: int, total: int) -> None:
        say(f"{case.name}: {what}, {done} of {total}")

    with TemporaryDirectory() as scratch:
        file = measurement_file(bench, _SEARCH, Path(scratch, "measured.jsonl"), fresh=True)
        return replace(case, artifact=search_run(bench, _SEARCH, file, tell).artifact)
