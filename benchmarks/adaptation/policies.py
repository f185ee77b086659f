"""The policies that are compared, and one epoch in rehearsal under one: four ranks, batches of 1,024, dimension 16.

exact    float32, coded ids
global   one bound for all tables, of a grid; ``global`` proper is the largest that keeps the AUC
sc24     the paper's classes and encoders, rows only, pooled
tuned    bounds that ``laconic tune`` chose
auto     wide bounds under a guard with a budget of 0.1 % of the normalized entropy
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, get_args

import torch

from benchmarks.data_sets import run_settings
from benchmarks.training.worker import METHODS
from laconic.adapt.adaptive import AdaptivePolicy, make_adaptive_policy
from laconic.adapt.evidence import Adaptation
from laconic.adapt.settings import DecaySettings, ExchangeSettings, PolicyFile, effective_auto
from laconic.adapt.tune.choose import choose, default_budget
from laconic.adapt.tune.measure import Measured, measure, work_of
from laconic.adapt.tune.policy_file import policy_text
from laconic.adapt.tune.run import RehearsedRun
from laconic.config import parse
from laconic.data import DataSettings, Samples, Source, open_source
from laconic.exchange import Layout
from laconic.exchange.exchange_plan import Policy
from laconic.train.metrics import evaluate
from laconic.train.ranks import Ranks
from laconic.train.rehearse import rehearse
from laconic.train.settings import ModelSettings, RunSettings
from laconic.train.trainer import Trainer

RANKS = 4
MODEL = ModelSettings(dim=16, bottom=(128, 64), top=(128, 64))
_BATCH = 1024 // RANKS
GLOBAL_BOUNDS = (0.005, 0.01, 0.02, 0.03, 0.05)
GRADIENTS_PER_ROWS = 35
"""Gradient bound of ``global``, beside that of rows: the ratio of Laconic's defaults."""
TUNE_SHARES = (0.0025, 0.002, 0.00275, 0.003)
"""Budgets of ``tuned``, as shares of what has been learnt; the first is the default of ``laconic tune``."""
KEEPS_AUC = -0.0003
"""Mean paired difference down to which a policy counts as keeping the AUC."""

DecayKind = Literal["step", "linear", "log", "constant"]


def exact() -> ExchangeSettings:
    """Everything as it is."""
    return ExchangeSettings(kind="exact")


def global_bound(bound: float) -> ExchangeSettings:
    """One bound for all tables."""
    return ExchangeSettings(bound=bound, gradient_bound=GRADIENTS_PER_ROWS * bound)


def auto() -> ExchangeSettings:
    """Return what ``auto`` is, but for the economy, which needs a link and is timed elsewhere."""
    return effective_auto(ExchangeSettings()).model_copy(update={"economy": False})


def decayed(
    base: ExchangeSettings, steps: int, ks: tuple[float, ...]
) -> Iterator[tuple[str, ExchangeSettings]]:
    """Yield a policy with each of the paper's decays over its first steps."""
    for k in ks:
        for kind in get_args(DecayKind):
            decay = DecaySettings(kind=kind, k=k, steps=steps)
            yield f"{kind} k={k:g}", base.model_copy(update={"decay": decay})


def measure_set(name: str, source: Source, data: DataSettings) -> tuple[RehearsedRun, Measured]:
    """Measure the tables of a data set, as ``laconic tune`` does; also returns what was trained for it."""
    settings = settings_for(name, data, exact(), seed=0)
    trained, _ = work_of(source, settings.train.batch, RANKS, None)
    run = rehearse(settings, source, RANKS)
    return run, measure(run, trained)


def tuned(measured: Measured, share: float) -> ExchangeSettings:
    """Bounds of ``laconic tune`` that take back this share of what has been learnt, by way of its policy file."""
    found = choose(measured, "the benchmark", default_budget(measured, share))
    return parse(policy_text(found), PolicyFile).exchange


def settings_for(name: str, data: DataSettings, exchange: ExchangeSettings, seed: int) -> RunSettings:
    """Return the settings of a run on a data set."""
    return run_settings(name, data, MODEL, exchange, batch=_BATCH, seed=seed)


@dataclass(frozen=True, slots=True)
class PolicyTrial:
    """What to train; a value that another process can be handed."""

    name: str
    """Name of the data set."""
    data: DataSettings
    policy: str
    decay: str
    exchange: ExchangeSettings | Literal["sc24"]
    """``sc24``: the paper's encoders and classes, pooled, forward only."""
    seed: int


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """How it ended."""

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
    exchange = ExchangeSettings() if trial.exchange == "sc24" else trial.exchange
    settings = settings_for(trial.name, trial.data, exchange, trial.seed)
    policy: Policy
    if trial.exchange == "sc24":
        method = METHODS["sc24"]
        settings = settings.model_copy(update={"embeddings": method.embeddings(settings.embeddings)})
        policy = method.policy(source.schema)
    else:
        names = [feature.name for feature in source.schema.categorical]
        policy = make_adaptive_policy(exchange, names, ranks=1)
    trainer = Trainer(settings, source.schema, Ranks(0, 1, rehearsed=RANKS), policy)
    adaptation = Adaptation(trainer, policy) if isinstance(policy, AdaptivePolicy) else None
    decisions = _train(trainer, adaptation, source, trial.seed)
    evaluation = evaluate(trainer, source, batch=4096)
    sent = {row["direction"]: row["bytes_sent"] for row in trainer.embeddings.ledger.summary()}
    steps = max(trainer.embeddings.step, 1)
    reviews = adaptation.review_bytes / steps if adaptation is not None else 0.0
    rows, ids = _plain_bytes(trainer.embeddings.layout, source, steps)
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
    """Bytes of pooled float32 rows, and of raw ids, that all ranks send per step with whole tables on ranks."""
    lookups = source.samples_in("train") / steps * len(layout.tables)
    foreign = (layout.ranks - 1) / layout.ranks
    return lookups * foreign * MODEL.dim * 4, lookups * foreign * 8
