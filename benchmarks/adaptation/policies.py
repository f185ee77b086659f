"""The policies that are compared, as settings.

exact    float32, coded ids
global   one bound for all tables, of a grid; ``global`` proper is the largest that keeps the AUC
sc24     the paper's classes and encoders, rows only, pooled
tuned    bounds that ``laconic tune`` chose
auto     wide bounds under a guard with a budget of 0.1 % of the normalized entropy
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from benchmarks.adaptation.trial import RANKS, settings_for
from laconic.adapt.settings import DecaySettings, ExchangeSettings, PolicyFile, effective_auto
from laconic.adapt.tune.choose import choose, default_budget
from laconic.adapt.tune.measure import Measured, measure, work_of
from laconic.adapt.tune.policy_file import policy_text
from laconic.adapt.tune.run import RehearsedRun
from laconic.config import parse
from laconic.data import DataSettings, Source
from laconic.train.rehearse import rehearse

__all__ = [
    "GLOBAL_BOUNDS",
    "KEEPS_AUC",
    "TUNE_SHARES",
    "auto",
    "decayed",
    "exact",
    "global_bound",
    "measure_set",
    "tuned",
]

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
    found = choose(measured, default_budget(measured, share))
    return parse(policy_text(found, "the benchmark"), PolicyFile).exchange
