"""What a run tells a planner: tables, batch, dense bytes, and how small its codecs make rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Literal

import torch

from laconic.adapt.policy import FixedPolicy
from laconic.codecs.batch import Batch, BlockCodec
from laconic.cost.link import DENSE_SHARE
from laconic.data import Source, open_source
from laconic.errors import ConfigError
from laconic.exchange.exchange_plan import ExchangePlan
from laconic.machine import free_memory_bytes
from laconic.train.dense import make_model
from laconic.train.ranks import Ranks
from laconic.train.settings import RunSettings
from laconic.train.trainer import Trainer

__all__ = ["Ratios", "RunFacts", "rehearsed_ratios", "run_facts"]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a planner needs to know of a run."""

    rows: dict[str, int]
    """Rows of every table, in the order of the tables."""

    batch: int
    dim: int
    state_bytes: int
    """Bytes of optimizer state of a row."""

    dense_bytes: float
    """Bytes of dense gradients a step, as they travel."""

    coded_ids: bool
    """Whether ids are coded."""


def run_facts(settings: RunSettings) -> RunFacts:
    """Open the data, for its schema only, and count the model's parameters."""
    schema = open_source(settings.data).schema
    with torch.device("meta"):
        model = make_model(settings.model, schema)
    values = sum(parameter.numel() for parameter in model.parameters())
    compression = settings.compression.effective()
    return RunFacts(
        rows={feature.name: feature.rows for feature in schema.categorical},
        batch=settings.train.batch,
        dim=settings.model.dim,
        state_bytes=4 if settings.embeddings.optimizer == "adagrad" else 0,
        dense_bytes=4 * values * DENSE_SHARE.get(compression.dense.method, 1.0),
        coded_ids=compression.ids,
    )


_SETTLE, _COUNT = 24, 24  # steps: gradients change fastest at the start, and are not counted then
_MOST_RANKS = (
    8  # blocks of more ranks are smaller, but a rehearsal of them all would take as long as training
)
_SHARE_OF_MEMORY = 0.5
_NORMAL_ROWS = 512


@dataclass(frozen=True, slots=True)
class Ratios:
    """Bytes before / bytes sent of every table, rows and gradients."""

    tables: dict[str, tuple[float, float]]
    how: Literal["exact", "rehearsed", "normal"]
    """Where they come from: nothing is compressed (``exact``), steps of the run (``rehearsed``), or
    normal values (``normal``)."""
    lossless: bool
    """Whether codecs change no bit."""


def rehearsed_ratios(settings: RunSettings, source: Source, ranks: int) -> Ratios:
    """Return the ratios of the run's own bounds.

    What a guard, an economy or a decay makes of them is not foretold. The run is rehearsed for a
    few steps, as its ranks would train, and the ledger says what they would have sent. If its
    tables do not fit into this machine's memory, the codecs are tried on normal values.
    """
    compression = settings.compression.effective()
    names = [feature.name for feature in source.schema.categorical]
    plan = compression.compression().policy(names).plan
    lossless = compression.rows.method == compression.gradients.method == "lossless"
    if ranks == 1 or all(codecs.forward is codecs.backward is None for codecs in plan.tables):
        return Ratios(dict.fromkeys(names, (1.0, 1.0)), "exact", lossless)
    if not _fits(settings, source):
        return Ratios(
            dict(zip(names, _normal_ratios(plan, settings.model.dim), strict=True)), "normal", lossless
        )
    return Ratios(_rehearse(settings, source, plan, min(ranks, _MOST_RANKS)), "rehearsed", lossless)


def _fits(settings: RunSettings, source: Source) -> bool:
    free = free_memory_bytes()
    needed = source.schema.total_rows * (4 * settings.model.dim + 4)
    return free is None or needed <= _SHARE_OF_MEMORY * free


def _rehearse(
    settings: RunSettings, source: Source, plan: ExchangePlan, ranks: int
) -> dict[str, tuple[float, float]]:
    # where tables live is what a plan is made for: by rows, as most are placed in the end
    embeddings = settings.embeddings.model_copy(
        update={"sharding": "row", "send": "rows", "replicate_below": 0}
    )
    rehearsed = settings.model_copy(update={"embeddings": embeddings})
    trainer = Trainer(rehearsed, source.schema, Ranks(0, 1, rehearsed=ranks), FixedPolicy(plan, 0))
    batches = source.batches("train", global_batch=settings.train.batch * ranks, rank=0, ranks=1)
    steps = 0
    for samples in islice(batches, _SETTLE + _COUNT):
        if steps == _SETTLE:
            trainer.rows.ledger.reset()
        trainer.step(samples)
        steps += 1
    if not steps:
        raise ConfigError("data: expected training samples, got none")
    accounts = trainer.rows.ledger.accounts
    both = []
    for direction in ("forward", "backward"):
        pairs = zip(accounts[direction].before_T.tolist(), accounts[direction].after_T.tolist(), strict=True)
        both.append([max(before / sent, 1.0) if sent else 1.0 for before, sent in pairs])
    names = (table.name for table in trainer.rows.layout.tables)
    return dict(zip(names, zip(*both, strict=True), strict=True))


def _normal_ratios(plan: ExchangePlan, dim: int) -> list[tuple[float, float]]:
    values = torch.randn(_NORMAL_ROWS, dim, generator=torch.Generator().manual_seed(0))
    known: dict[BlockCodec | None, float] = {None: 1.0}
    for codec in {each for codecs in plan.tables for each in (codecs.forward, codecs.backward)} - {None}:
        assert codec is not None
        data, _ = Batch.of([(codec, tuple(values.shape))]).encode(values.reshape(-1), threads=1)
        known[codec] = max(4 * values.numel() / len(data), 1.0)
    return [(known[codecs.forward], known[codecs.backward]) for codecs in plan.tables]
