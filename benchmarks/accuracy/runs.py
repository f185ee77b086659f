"""One run of an epoch in one process, as four ranks would train to whom every row is remote.

A rank does not send what it owns, so two ranks hide half of what rounding does and four a quarter.
Here all traffic is rounded, as a cluster of hundreds would pay for it (``LocalWorld`` with
``all_remote``). Figures of the model are::

    log loss, AUC     of the test samples, with exact rows
    progressive       mean loss of every batch before it is learnt, over the last three quarters of
                      the epoch, with rows as they travel: a million unseen samples

Gradients of the dense part are those of four ranks too (``DenseRanks``), unless they are exact.

A *null* run is an exact run whose first dense weights are moved by 1e-6: how far it ends from the
exact one is what an experiment cannot resolve.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Literal

import torch

from benchmarks.accuracy.dense_ranks import DenseRanks
from benchmarks.harness import run_settings
from laconic.adapt.adaptive import make_adaptive_policy
from laconic.adapt.evidence import Adaptation
from laconic.adapt.settings import CompressionSettings
from laconic.data import DataSettings, Samples, Source, open_source
from laconic.reduce import LargeFirst, Levels
from laconic.train.metrics import evaluate
from laconic.train.ranks import Ranks
from laconic.train.settings import ModelSettings
from laconic.train.trainer import Trainer

RANKS, BATCH = 4, 256
MODEL = ModelSettings(dim=16, bottom=(128, 64), top=(128, 64))
_NUDGE = 1e-6


@dataclass(frozen=True, slots=True)
class AccuracyRun:
    """One run to train; other processes can take it."""

    data: str
    """Name of the data set."""
    settings: DataSettings
    policy: str
    compression: CompressionSettings
    seed: int
    nudged: bool = False
    """Whether the first dense weights are moved: a null run."""
    optimizer: Literal["adagrad", "adam"] = "adagrad"
    """What trains the dense part."""


@dataclass(frozen=True, slots=True)
class AccuracyFigures:
    """What came of a run."""

    run: AccuracyRun
    log_loss: float
    auc: float
    progressive: float
    estimate_low: float
    """What the run believes that compression has cost, as a share of its loss; NaN: it cannot."""
    estimate_high: float
    bytes_rows_ids: float
    """Bytes of rows and ids that all ranks sent per step, reviews included."""
    bytes_gradients: float
    plain_rows_ids: float
    """Bytes of the same batches as pooled float32 vectors and raw ids."""
    plain_gradients: float
    ratio_dense: float | None = None
    """Bytes of a ring all-reduce of the dense gradients over those sent; None: they were exact."""


def train_once(run: AccuracyRun) -> AccuracyFigures:
    """Train an epoch, then evaluate."""
    torch.set_num_threads(1)
    source = open_source(run.settings)
    how: dict[str, Any] = {"batch": BATCH, "seed": run.seed, "optimizer": run.optimizer}
    settings = run_settings(run.data, run.settings, MODEL, run.compression, **how)
    names = [feature.name for feature in source.schema.categorical]
    # an economy needs a link to measure; ``ranks=1`` has none
    policy = make_adaptive_policy(run.compression.effective(), names, ranks=1)
    trainer = Trainer(settings, source.schema, Ranks(0, 1, rehearsed=RANKS, all_remote=True), policy)
    if run.nudged:
        _nudge(trainer.model.parameters(), run.seed)
    method = run.compression.dense.value(run.seed, None)
    dense = None
    if isinstance(method, LargeFirst | Levels):
        dense = trainer.replicate(partial(DenseRanks, ranks=RANKS, method=method))
        dense.follow(trainer.optimizer)
    adaptation = Adaptation(trainer, policy)
    progressive = _train(trainer, adaptation, source, run.seed)
    evaluation = evaluate(trainer, source, batch=4096)
    estimate = adaptation.estimate()
    sent = {row["direction"]: row["bytes_sent"] for row in trainer.rows.ledger.summary()}
    lookups = source.samples_in("train") * len(names) / max(trainer.rows.step, 1)
    reviews = adaptation.review_bytes / max(trainer.rows.step, 1)
    trainer.embeddings.close()
    if dense is not None:
        dense.close()
    return AccuracyFigures(
        run,
        log_loss=evaluation.log_loss,
        auc=evaluation.auc,
        progressive=progressive,
        estimate_low=estimate.low,
        estimate_high=estimate.high,
        bytes_rows_ids=sent["forward"] + sent["ids"] + reviews / 2,
        bytes_gradients=sent["backward"] + reviews / 2,
        plain_rows_ids=lookups * (4 * MODEL.dim + 8),
        plain_gradients=lookups * 4 * MODEL.dim,
        ratio_dense=None if dense is None else dense.ratio,
    )


def _nudge(parameters: Iterable[torch.nn.Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=_NUDGE)


def _train(trainer: Trainer, adaptation: Adaptation, source: Source, epoch: int) -> float:
    """Train an epoch; return the progressive loss."""
    batches = source.batches("train", global_batch=BATCH * RANKS, rank=0, ranks=1, epoch=epoch)
    ahead: deque[Samples] = deque()
    losses: list[tuple[float, int]] = []
    while True:
        ahead.extend(islice(batches, 2 - len(ahead)))
        if not ahead:
            break
        samples = ahead.popleft()
        loss, _ = trainer.step(samples)
        losses.append((float(loss), len(samples)))
        adaptation.after(len(losses), float(loss), len(samples), list(ahead))
    late = losses[len(losses) // 4 :]
    return sum(loss * count for loss, count in late) / sum(count for _, count in late)


def row_of(ours: AccuracyFigures, exact: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pair as it is written down; ``exact``: what its exact and null runs came to."""
    return {
        "data": ours.run.data,
        "optimizer": ours.run.optimizer,
        "policy": ours.run.policy,
        "seed": ours.run.seed,
        "log_loss": ours.log_loss,
        "exact_log_loss": exact["exact_log_loss"],
        "null_log_loss": exact["null_log_loss"],
        "progressive": ours.progressive,
        "exact_progressive": exact["exact_progressive"],
        "null_progressive": exact["null_progressive"],
        "auc": ours.auc,
        "exact_auc": exact["exact_auc"],
        "estimate_low": ours.estimate_low,
        "estimate_high": ours.estimate_high,
        "ratio_rows_ids": ours.plain_rows_ids / ours.bytes_rows_ids,
        "ratio_gradients": ours.plain_gradients / ours.bytes_gradients,
        **({} if ours.ratio_dense is None else {"ratio_dense": ours.ratio_dense}),
    }
