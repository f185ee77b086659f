"""What is compared: policies, each for an epoch in rehearsal, and encoders, table by table.

Four ranks are rehearsed, with batches of 1,024 and dimension 16. The policies are::

    exact    float32, coded ids
    global   one bound for all tables, of a grid; ``global`` is the largest that keeps the AUC
    sc24     the paper's classes and encoders, rows only, pooled
    tuned    bounds that ``laconic tune`` chose
    auto     bounds that a guard widens, with a budget of 0.1 % of the loss

Encoders are compared within one bound: those of the SC'24 paper and ``BoundedRows``. A trained
model's rows are encoded as four ranks would send them for batches of the next epoch. The bound of
each table is that of its class in the paper. The first four figures differ only in the encoder::

    vector LZ, Huffman, hybrid, BoundedRows    pooled: one row for every sample of each destination
    distinct                                   BoundedRows of each distinct row, once for each
                                               owner and destination, as Laconic sends them

All are ratios to the same float32 bytes, those of pooled rows. They leave out ids and size
messages. Shape legend: ``M`` other ranks, ``T`` tables, ``R`` rows, ``D`` dimensions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table

from benchmarks.harness import run_settings, table_of
from benchmarks.training.worker import METHODS, paper_bound
from laconic.adapt import BUDGET
from laconic.adapt.adaptive import AdaptivePolicy, make_adaptive_policy
from laconic.adapt.compression import Compression
from laconic.adapt.decay import Decay
from laconic.adapt.evidence import Adaptation
from laconic.adapt.settings import CompressionSettings, GradientCodec, PolicyFile, RowCodec
from laconic.adapt.tune.choose import choose
from laconic.adapt.tune.measure import Measured, measure, work_of
from laconic.adapt.tune.policy_file import policy_text
from laconic.adapt.tune.run import RehearsedRun
from laconic.codecs import BlockCodec, BoundedRows, Huffman, Hybrid, VectorLz
from laconic.config import parse
from laconic.data import DataSettings, Samples, Source, open_source
from laconic.exchange import Layout
from laconic.exchange.coder import Coder
from laconic.exchange.exchange_plan import Policy
from laconic.exchange.ranks.world import LocalWorld
from laconic.exchange.sent_rows import Blocks, KeptBlocks
from laconic.nn import ShardedEmbeddings
from laconic.train.metrics import evaluate
from laconic.train.ranks import Ranks
from laconic.train.rehearse import rehearse
from laconic.train.settings import ModelSettings, RunSettings
from laconic.train.trainer import Trainer

RANKS = 4
MODEL = ModelSettings(dim=16, bottom=(128, 64), top=(128, 64))
_BATCH = 1024 // RANKS
GLOBAL_BOUNDS = (0.005, 0.01, 0.02, 0.03, 0.05)
GRADIENTS_PER_ROWS = 40
"""Gradient bound of ``global``, beside that of rows: the ratio of Laconic's defaults."""
TUNE_BUDGETS = (BUDGET, 0.0005, 0.002, 0.004)
"""Budgets of ``tuned``, as shares of the loss; ``laconic tune`` uses the first."""
KEEPS_AUC = -0.0003
"""Mean paired difference down to which a policy counts as keeping the AUC."""

DecayKind = Literal["step", "linear", "log", "constant"]


def exact() -> CompressionSettings:
    """Send everything as it is."""
    return CompressionSettings.model_validate({"rows": "exact", "gradients": "exact"})


def global_bound(bound: float) -> CompressionSettings:
    """Use one bound for all tables."""
    return CompressionSettings(
        rows=RowCodec(bound=bound), gradients=GradientCodec(bound=GRADIENTS_PER_ROWS * bound)
    )


def auto() -> CompressionSettings:
    """Return what ``auto`` is, but for the economy, which needs a link and is timed elsewhere."""
    return CompressionSettings(policy="auto").effective().model_copy(update={"economy": False})


def decayed(
    base: CompressionSettings, steps: int, ks: tuple[float, ...]
) -> Iterator[tuple[str, CompressionSettings]]:
    """Yield a policy with each of the paper's decays over its first steps."""
    for k in ks:
        for kind in get_args(DecayKind):
            decay = Decay(kind=kind, k=k, steps=steps)
            yield f"{kind} k={k:g}", base.model_copy(update={"decay": decay})


def measure_set(name: str, source: Source, data: DataSettings) -> tuple[RehearsedRun, Measured]:
    """Measure the tables of a data set as ``laconic tune`` does; return the trained run too."""
    settings = settings_for(name, data, exact(), seed=0)
    trained, _ = work_of(source, settings.train.batch, RANKS, None)
    run = rehearse(settings, source, RANKS)
    return run, measure(run, trained)


def tuned(measured: Measured, budget: float) -> CompressionSettings:
    """Return the bounds of ``laconic tune`` for this share of the loss."""
    found = choose(measured, "the benchmark", budget)
    return parse(policy_text(found), PolicyFile).compression


def settings_for(name: str, data: DataSettings, compression: CompressionSettings, seed: int) -> RunSettings:
    """Return the settings of a run on a data set."""
    return run_settings(name, data, MODEL, compression, batch=_BATCH, seed=seed)


@dataclass(frozen=True, slots=True)
class PolicyTrial:
    """One run to train; other processes can take it."""

    name: str
    """Name of the data set."""
    data: DataSettings
    policy: str
    decay: str
    compression: CompressionSettings | Literal["sc24"]
    """``sc24``: the paper's encoders and classes, pooled, forward only."""
    seed: int


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """Accuracy and bytes of one trial."""

    trial: PolicyTrial
    auc: float
    log_loss: float
    ratio_forward: float
    """Bytes of plain pooled float32 rows and raw ids over those of rows and ids that were sent."""
    ratio_backward: float
    bytes_sent: float
    """Bytes of rows, ids and gradients, by all ranks per step; reviews included."""
    decisions: int


def run_trial(trial: PolicyTrial) -> PolicyOutcome:
    """Train one epoch and evaluate."""
    torch.set_num_threads(1)
    source = open_source(trial.data)
    compression = CompressionSettings() if trial.compression == "sc24" else trial.compression
    settings = settings_for(trial.name, trial.data, compression, trial.seed)
    policy: Policy
    if trial.compression == "sc24":
        method = METHODS["sc24"]
        settings = settings.model_copy(update={"embeddings": method.embeddings(settings.embeddings)})
        policy = method.policy(source.schema)
    else:
        names = [feature.name for feature in source.schema.categorical]
        policy = make_adaptive_policy(compression, names, ranks=1)
    trainer = Trainer(settings, source.schema, Ranks(0, 1, rehearsed=RANKS), policy)
    adaptation = Adaptation(trainer, policy) if isinstance(policy, AdaptivePolicy) else None
    decisions = _train(trainer, adaptation, source, trial.seed)
    evaluation = evaluate(trainer, source, batch=4096)
    sent = {row["direction"]: row["bytes_sent"] for row in trainer.rows.ledger.summary()}
    steps = max(trainer.rows.step, 1)
    reviews = adaptation.review_bytes / steps if adaptation is not None else 0.0
    rows, ids = _plain_bytes(trainer.rows.layout, source, steps)
    return PolicyOutcome(
        trial,
        evaluation.auc,
        evaluation.log_loss,
        (rows + ids) / (sent["forward"] + sent["ids"] + reviews / 2),
        rows / (sent["backward"] + reviews / 2),
        sum(sent.values()) + reviews,
        decisions,
    )


def _train(trainer: Trainer, adaptation: Adaptation | None, source: Source, epoch: int) -> int:
    batches = source.batches("train", global_batch=_BATCH * RANKS, rank=0, ranks=1, epoch=epoch)
    ahead: deque[Samples] = deque()
    decisions = step = 0
    while True:
        ahead.extend(islice(batches, 9 - len(ahead)))
        if not ahead:
            return decisions
        samples = ahead.popleft()
        loss, _ = trainer.step(samples)
        step += 1
        if adaptation is not None:
            decisions += len(adaptation.after(step, float(loss), len(samples), list(ahead)))


def _plain_bytes(layout: Layout, source: Source, steps: int) -> tuple[float, float]:
    """Return bytes of pooled float32 rows and of raw ids that all ranks send per step."""
    lookups = source.samples_in("train") / steps * len(layout.tables)
    foreign = (layout.ranks - 1) / layout.ranks
    return lookups * foreign * MODEL.dim * 4, lookups * foreign * 8


_SAMPLES = (256, 2048)  # of a rank: what is trained with, and what ``benchmarks train`` counts bytes with
_BATCHES = 4
_VECTOR_LZ, _HUFFMAN = 5, 6  # forms of a block, docs/formats/sc24.md

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderRow:
    """Figures of each encoder for one table: float32 bytes of pooled rows over bytes sent."""

    data: str
    table: str | None
    """Name of the table; None for all tables together."""
    table_rows: int
    bound: float | None
    """A share of each block's range; None: each table has its own."""
    samples_per_rank: int
    vector_lz: float
    huffman: float
    hybrid: float
    lz_blocks: int
    """Blocks for which hybrid chose vector LZ."""
    huffman_blocks: int
    """Blocks for which it chose Huffman; stored blocks and blocks of one value are neither."""
    bounded_rows: float
    distinct: float


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Bytes and forms of all blocks of some batches, by table."""

    bytes_T: Ints
    lz_T: Ints
    huffman_T: Ints


def compare_encoders(name: str, run: RehearsedRun, source: Source) -> list[EncoderRow]:
    """Encode a trained model's rows: a row of results per table and one for all, per batch size."""
    rows: list[EncoderRow] = []
    for samples in _SAMPLES:
        batches = source.batches("train", global_batch=samples * run.ranks, rank=0, ranks=1, epoch=1)
        rows += _compare(name, run, list(islice(batches, _BATCHES)), samples)
    return rows


def _compare(name: str, run: RehearsedRun, batches: Sequence[Samples], samples: int) -> list[EncoderRow]:
    tables = run.subject.tables
    bounds = [paper_bound(table.rows) for table in tables]
    pooled, distinct = _pooled(run, batches), _distinct(run, batches)

    def sent(make: Callable[[float], BlockCodec]) -> _Encoded:
        return _encode(pooled, [make(bound) for bound in bounds])

    ours = [BoundedRows(bound, relative_to="range") for bound in bounds]
    hybrid = sent(lambda bound: Hybrid(bound, relative_to="range"))
    plain_T = np.sum(
        [blocks.counts_MP.sum(axis=0) * blocks.rows_RD.shape[1] * 4 for blocks in pooled], axis=0
    )
    figures = {
        "vector_lz": sent(lambda bound: VectorLz(bound, relative_to="range")),
        "huffman": sent(lambda bound: Huffman(bound, relative_to="range")),
        "hybrid": hybrid,
        "bounded_rows": _encode(pooled, ours),
        "distinct": _encode(distinct, ours),
    }

    def row(which: slice, table: str | None, bound: float | None) -> EncoderRow:
        plain = plain_T[which].sum()
        return EncoderRow(
            data=name,
            table=table,
            table_rows=sum(table.rows for table in tables[which]),
            bound=bound,
            samples_per_rank=samples,
            lz_blocks=int(hybrid.lz_T[which].sum()),
            huffman_blocks=int(hybrid.huffman_T[which].sum()),
            **{figure: float(plain / found.bytes_T[which].sum()) for figure, found in figures.items()},
        )

    each = [row(slice(t, t + 1), table.name, bounds[t]) for t, table in enumerate(tables)]
    return [*each, row(slice(None), None, None)]


def _distinct(run: RehearsedRun, batches: Sequence[Samples]) -> list[Blocks]:
    """Return what ranks send for these batches as the run places its tables."""
    kept = KeptBlocks()
    with run.under(run.exact), run.subject.observe(kept):
        for samples in batches:
            run.subject.embed(samples)
    return kept.of("forward")


def _pooled(run: RehearsedRun, batches: Sequence[Samples]) -> list[Blocks]:
    """Return what they send if the same tables are whole on one rank and pooled there."""
    assert isinstance(run.subject, Trainer), "rows are copied from the trainer's"
    kept, shards = KeptBlocks(), run.subject.rows.shards()
    tables = [replace(table, sharding="table", send="pooled") for table in run.subject.tables]
    exact, world = Compression(rows=None, gradients=None), LocalWorld(run.ranks, patience_s=0)
    embeddings = ShardedEmbeddings(tables, exact, world=world)
    (rows,) = embeddings.engines
    for target in rows.shards():
        for table in tables:
            _, whole_RD, _ = target.view(table.name)
            for source in shards if len(whole_RD) else ():
                ids, rows_RD, _ = source.view(table.name)
                whole_RD[ids.start : ids.stop : ids.step] = rows_RD
    rows.observe(kept)
    with torch.no_grad():
        for samples in batches:
            embeddings(samples.lookups)
    embeddings.close()
    return kept.of("forward")


def _encode(sent: Sequence[Blocks], codecs: Sequence[BlockCodec]) -> _Encoded:
    """Encode the rows that travel, block by block."""
    coder = Coder(codecs, sent[0].rows_RD.shape[1], torch.float32)
    bytes_T, lz_T, huffman_T = (np.zeros(len(codecs), np.int64) for _ in range(3))
    for blocks in sent:
        payload, sizes_MT = coder.encode(blocks.rows_RD, blocks.counts_MP, 0)
        bytes_T += sizes_MT.sum(axis=0)
        forms_MT = np.zeros_like(sizes_MT)
        begins_MT = (np.cumsum(sizes_MT) - sizes_MT.ravel()).reshape(sizes_MT.shape)
        forms_MT[sizes_MT > 0] = payload[begins_MT[sizes_MT > 0]]
        lz_T += (forms_MT == _VECTOR_LZ).sum(axis=0)
        huffman_T += (forms_MT == _HUFFMAN).sum(axis=0)
    return _Encoded(bytes_T, lz_T, huffman_T)


def encoder_table(data: str, rows: Sequence[EncoderRow]) -> Table:
    """Show tables one by one with the smallest batches, all of them together with each size."""
    least = min(row.samples_per_rank for row in rows)

    def name(row: EncoderRow) -> str:
        size = "" if row.samples_per_rank == least else f", {row.samples_per_rank} samples"
        return row.table or f"all{size}"

    return table_of(
        f"{data}: encoders of rows at the paper's bounds, 4 ranks, {least} samples a rank unless said",
        [row for row in rows if row.table is None or row.samples_per_rank == least],
        ("table", name),
        ("rows", lambda row: str(row.table_rows)),
        ("bound", lambda row: "" if row.bound is None else f"{row.bound:g}"),
        ("vector LZ", lambda row: f"{row.vector_lz:.1f}x"),
        ("Huffman", lambda row: f"{row.huffman:.1f}x"),
        ("hybrid", lambda row: f"{row.hybrid:.1f}x"),
        ("LZ chosen", lambda row: f"{row.lz_blocks} of {row.lz_blocks + row.huffman_blocks}"),
        ("BoundedRows", lambda row: f"{row.bounded_rows:.1f}x"),
        ("distinct rows", lambda row: f"{row.distinct:.1f}x"),
    )
