"""Tune a run: train it briefly in rehearsal, measure its tables, choose their bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from laconic.adapt.curves import TableCurves
from laconic.adapt.harm import LEAST_SLOPE
from laconic.adapt.tuned_bounds import TunedBounds, tune_bounds
from laconic.data import Source
from laconic.errors import ConfigError
from laconic.train.settings import RunSettings
from laconic.tuning.defaults import BUDGET, MOST_STEPS, SHARE
from laconic.tuning.measure import Effort, measure_tables
from laconic.tuning.stage import Stage

__all__ = ["Measured", "Tuned", "choose", "default_budget", "measure", "measure_stage", "work_of"]

_LEAST_BUDGET = 1e-5  # of the loss, where next to nothing has been learnt


@dataclass(frozen=True, slots=True)
class Measured:
    """What a rehearsal found."""

    tables: tuple[TableCurves, ...]
    ranks: int
    steps: int
    """Trained before measuring."""
    loss: float
    """Of unseen batches at the end of them."""
    slope: float
    """Share of the loss that training takes off while steps grow e-fold."""
    entropy: float
    """Of the labels: the loss of who knows their mean alone."""

    @property
    def learnt(self) -> float:
        """What training has taken off the entropy of the labels, as a share of the loss."""
        return max(self.entropy - self.loss, 0.0) / self.loss


@dataclass(frozen=True, slots=True)
class Tuned:
    """Bounds for a budget."""

    measured: Measured
    bounds: TunedBounds
    budget: float


def work_of(settings: RunSettings, source: Source, ranks: int, steps: int | None) -> tuple[int, int]:
    """Return the steps to train, and the pieces of work in all, for a progress bar."""
    effort = Effort()
    per_epoch = source.samples_in("train") // (settings.train.batch * ranks)
    room = per_epoch - effort.batches
    wanted = min(int(SHARE * per_epoch), MOST_STEPS) if steps is None else steps
    if room < 8 or (steps is not None and steps > room):
        raise ConfigError(
            f"tune: an epoch has {per_epoch} batches of {settings.train.batch} samples on {ranks} ranks, and "
            f"measuring takes {effort.batches} of them; expected --steps of 8 to {max(room, 0)}, got {wanted}"
        )
    trained = max(min(wanted, room), 8)
    return trained, trained + effort.count(source.schema.tables)


def measure(
    settings: RunSettings,
    source: Source,
    *,
    ranks: int,
    steps: int | None = None,
    done: Callable[[], None] = lambda: None,
) -> Measured:
    """Train exactly in rehearsal, then measure; ``done`` is called after each piece of work."""
    trained, _ = work_of(settings, source, ranks, steps)
    return measure_stage(Stage(settings, source, ranks), trained, done)


def measure_stage(stage: Stage, trained: int, done: Callable[[], None] = lambda: None) -> Measured:
    """Train a new stage exactly for so many steps, then measure; it is left as training made it."""
    losses: list[float] = []
    positive = labels = 0
    for samples in stage.stream(trained):
        losses += stage.train([samples], stage.exact, done)
        positive, labels = positive + int(samples.label_B.sum()), labels + len(samples)
    slope = _slope(losses)
    tables = measure_tables(stage, Effort(), trained=trained, slope=slope, done=done)
    loss = fmean(losses[-max(len(losses) // 10, 1) :])
    return Measured(tables, stage.ranks, trained, loss, slope, _entropy(positive / labels))


def default_budget(measured: Measured, share: float = BUDGET) -> float:
    """Return the increase of the loss that takes back this share of what has been learnt, as a share of the loss.

    Equal increases of the loss are not equal harm: 0.07 % cost as much AUC on Book-Crossing, whose loss is 0.77 of
    the labels' entropy, as 0.9 % on The Complete Journey, where it is 0.24.
    """
    return min(max(share * measured.learnt, _LEAST_BUDGET), 0.5)


def choose(measured: Measured, budget: float | None = None) -> Tuned:
    """Choose bounds whose predicted increase of the loss is no more than ``budget``, a share of it."""
    if budget is None:
        budget = default_budget(measured)
    if not 0 < budget < 1:
        raise ConfigError(f"tune: expected a budget between 0 and 1, as 0.0005 or 0.05%, got {budget!r}")
    return Tuned(measured, tune_bounds(measured.tables, budget), budget)


def _entropy(mean: float) -> float:
    """Of labels of this mean, in nats."""
    return -sum(share * math.log(share) for share in (mean, 1 - mean) if share > 0)


def _slope(losses: Sequence[float]) -> float:
    """Share of the loss lost per e-fold of steps, from around the middle to the end."""
    tenth = max(len(losses) // 10, 1)
    middle = len(losses) // 2
    early, late = fmean(losses[middle - tenth // 2 : middle + tenth - tenth // 2]), fmean(losses[-tenth:])
    between = math.log((len(losses) - tenth / 2) / max(middle, 1))
    return max((early - late) / late / between, LEAST_SLOPE)
