"""Train a run briefly in rehearsal and measure its tables: bytes, errors and harm at all bounds.

Forward: the model scores held-out batches with one table's rows as they would arrive at some bound;
the harm done (``adapt.harm``) over the error of those rows is the table's sensitivity. There they
are rounded without bias, so that errors know nothing of the values; bounds are measured as they
will be used, to the nearest.

Backward: short forks with one table's gradients rounded, see ``gradient_harm``.

Shape legend: ``T`` tables, ``R`` rows, ``D`` dimensions, ``B`` samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.adapt.harm import LEAST_SLOPE, curvature_harm, mean_loss, mean_share
from laconic.adapt.tune import MOST_STEPS, SHARE
from laconic.adapt.tune.curves import Curve, TableCurves, homogenization_index
from laconic.adapt.tune.gradient_harm import Progress, gradient_harm
from laconic.adapt.tune.run import RehearsedRun, labels_of
from laconic.codecs import BoundedRows
from laconic.codecs.batch import BlockCodec
from laconic.data import Samples, Source
from laconic.errors import ConfigError
from laconic.exchange.coder import Coder
from laconic.exchange.errors_seen import UpdateError, relative_error_T
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.exchange.sent_rows import Blocks, KeptBlocks

__all__ = ["FORWARD_BOUNDS", "GRADIENT_BOUNDS", "Effort", "Measured", "measure", "work_of"]

FORWARD_BOUNDS = (0.002, 0.004, 0.007, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24)
GRADIENT_BOUNDS = (0.06, 0.12, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
_TRIED_FORWARD, _TRIED_BACKWARD = 0.06, 2.0  # where sensitivities are measured: inside the grids

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    sampled_batches: int = 4
    """Batches whose bytes and errors are measured."""
    scored_batches: int = 8
    """Batches on which losses are compared."""
    forks: int = 5
    fork_steps: int = 8
    """Trained with coarse and with exact gradients, in each fork."""

    @property
    def batches(self) -> int:
        """Batches of the data set, in all."""
        return self.sampled_batches + self.scored_batches + self.forks * self.fork_steps

    def count(self, tables: int) -> int:
        """Pieces of work after training."""
        return 3 + len(FORWARD_BOUNDS) + len(GRADIENT_BOUNDS) + tables + self.forks * (tables + 1)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a rehearsal found."""

    tables: tuple[TableCurves, ...]
    ranks: int
    steps: int
    """Steps trained before measuring."""
    loss: float
    """Loss of unseen batches at the end of them."""
    slope: float
    """Share of the loss that training takes off while steps grow e-fold."""
    entropy: float
    """Entropy of the labels: the loss of who knows their mean alone."""

    @property
    def learnt(self) -> float:
        """What training has taken off the entropy of the labels, as a share of the loss."""
        return max(self.entropy - self.loss, 0.0) / self.loss


def work_of(source: Source, batch: int, ranks: int, steps: int | None) -> tuple[int, int]:
    """Return the steps to train, and the pieces of work in all, for a progress bar."""
    effort = Effort()
    per_epoch = source.samples_in("train") // (batch * ranks)
    room = per_epoch - effort.batches
    wanted = min(int(SHARE * per_epoch), MOST_STEPS) if steps is None else steps
    if room < 8 or (steps is not None and steps > room):
        raise ConfigError(
            f"tune: an epoch has {per_epoch} batches of {batch} samples on {ranks} ranks, and "
            f"measuring takes {effort.batches} of them; expected --steps of 8 to {max(room, 0)}, got {wanted}"
        )
    trained = max(min(wanted, room), 8)
    return trained, trained + effort.count(source.schema.tables)


def measure(run: RehearsedRun, steps: int) -> Measured:
    """Train a new run exactly for some steps, then measure its tables without changing it."""
    losses: list[float] = []
    positive = labels = 0
    for samples in run.stream(steps):
        losses += run.train([samples], run.exact)
        run.done()
        positive, labels = positive + int(samples.label_B.sum()), labels + len(samples)
    slope = _slope(losses)
    tables = _measure_tables(run, Effort(), Progress(steps, slope))
    loss = fmean(losses[-max(len(losses) // 10, 1) :])
    return Measured(tables, run.ranks, steps, loss, slope, _entropy(positive / labels))


def _entropy(mean: float) -> float:
    """Entropy of labels of this mean, in nats."""
    return -sum(share * math.log(share) for share in (mean, 1 - mean) if share > 0)


def _slope(losses: Sequence[float]) -> float:
    """Share of the loss lost per e-fold of steps, from around the middle to the end."""
    tenth = max(len(losses) // 10, 1)
    middle = len(losses) // 2
    early, late = fmean(losses[middle - tenth // 2 : middle + tenth - tenth // 2]), fmean(losses[-tenth:])
    between = math.log((len(losses) - tenth / 2) / max(middle, 1))
    return max((early - late) / late / between, LEAST_SLOPE)


def forward_codec(bound: float) -> BlockCodec:
    """Return the codec of rows."""
    return BoundedRows(bound, relative_to="range")


def _noisy_codec(bound: float) -> BlockCodec:
    """Return a codec of rows whose errors do not depend on the values."""
    return BoundedRows(bound, relative_to="range", rounding="unbiased")


def backward_codec(bound: float) -> BlockCodec:
    """Return the codec of gradients."""
    return BoundedRows(bound, relative_to="rms", rounding="unbiased")


def _measure_tables(run: RehearsedRun, effort: Effort, progress: Progress) -> tuple[TableCurves, ...]:
    """Measure all tables at the run's present state."""
    sampled = run.take(effort.sampled_batches)
    forks = [run.take(effort.fork_steps) for _ in range(effort.forks)]
    scored = run.take(effort.scored_batches)
    rows, gradients = _sample(run, sampled)
    run.done()
    tables = range(len(run.names))
    tried = _Errors.of(run, rows, _noisy_codec, (_TRIED_FORWARD,))
    tried_back = _Errors.of(run, gradients, backward_codec, (_TRIED_BACKWARD,))
    harm_F = _forward_harm(run, scored)
    coarse = TableCodecs(backward=backward_codec(_TRIED_BACKWARD))
    plans = [_only(run, t, coarse) for t in tables]
    harm_B = gradient_harm(run, forks, scored, plans, ExchangePlan((coarse,) * len(tables)), progress)
    sensitivity_F = [_per_error(harm_F[t], tried.errors[0, t]) for t in tables]
    sensitivity_B = [_per_error(harm_B[t], tried_back.errors[0, t]) for t in tables]
    rows_T = [_of_table(rows, t) for t in tables]
    forward = _Errors.of(run, rows, forward_codec, FORWARD_BOUNDS)
    backward = _Errors.of(run, gradients, backward_codec, GRADIENT_BOUNDS)
    return tuple(
        TableCurves(
            name=table.name,
            rows=table.rows,
            forward=forward.curve(t, sensitivity_F[t]),
            backward=backward.curve(t, sensitivity_B[t]),
            homogenization=tuple(homogenization_index(rows_T[t], bound) for bound in FORWARD_BOUNDS),
        )
        for t, table in enumerate(run.subject.tables)
    )


def _per_error(harm: tuple[float, float], error: float) -> tuple[float, float]:
    """Sensitivity and its standard error, from the harm that came with an error."""
    return (harm[0] / error, harm[1] / error) if error else (0.0, 0.0)


Sampled = list[list[Blocks]]
"""Blocks that each rank sends, by step."""


def _sample(run: RehearsedRun, batches: list[Samples]) -> tuple[Sampled, Sampled]:
    """Rows and gradients of these batches, at the present state of the model."""
    steps: list[KeptBlocks] = []
    with run.snapshot() as snapshot, run.under(run.exact):
        for samples in batches:
            steps.append(KeptBlocks())
            with run.subject.observe(steps[-1]):
                run.subject.step(samples)
            snapshot.go_back()
    return [kept.of("forward") for kept in steps], [kept.of("backward") for kept in steps]


@dataclass(frozen=True, slots=True)
class _Errors:
    """Bytes per step and relative errors, bounds x T."""

    bounds: tuple[float, ...]
    bytes_sent: Floats
    errors: Floats
    bytes_exact_T: Floats

    @classmethod
    def of(
        cls,
        run: RehearsedRun,
        sampled: Sampled,
        codec: Callable[[float], BlockCodec],
        bounds: tuple[float, ...],
    ) -> _Errors:
        tables = len(run.names)
        bytes_sent, errors = np.zeros((len(bounds), tables)), np.zeros((len(bounds), tables))
        exact_T = np.zeros(tables)
        for blocks in chain.from_iterable(sampled):
            row_bytes = blocks.rows_RD.shape[1] * blocks.rows_RD.itemsize
            exact_T += row_bytes * np.bincount(blocks.table_P, blocks.counts_MP.sum(axis=0), tables)
        for i, bound in enumerate(bounds):
            error = UpdateError(tables)
            coder = _coder(sampled, codec(bound))
            for step, ranks in enumerate(sampled):
                for blocks in ranks:
                    arrived_RD, bytes_MP = blocks.travel(coder, step)
                    error.add_rows(blocks.table_R, blocks.rows_RD, arrived_RD)
                    bytes_sent[i] += np.bincount(blocks.table_P, bytes_MP.sum(axis=0), tables)
            errors[i] = relative_error_T(error.sums_4T)
            run.done()
        return cls(bounds, bytes_sent / len(sampled), errors, exact_T / len(sampled))

    def curve(self, t: int, sensitivity: tuple[float, float]) -> Curve:
        """Curve of a table of this sensitivity, give or take its standard error."""
        return Curve(
            bounds=self.bounds,
            bytes_sent=tuple(self.bytes_sent[:, t].tolist()),
            bytes_exact=float(self.bytes_exact_T[t]),
            error=tuple(self.errors[:, t].tolist()),
            sensitivity=sensitivity[0],
            sensitivity_se=sensitivity[1],
        )


def _only(run: RehearsedRun, t: int, codecs: TableCodecs) -> ExchangePlan:
    """Only one table is not exact."""
    return ExchangePlan(tuple(codecs if k == t else TableCodecs() for k in range(len(run.names))))


def _forward_harm(run: RehearsedRun, scored: list[Samples]) -> list[tuple[float, float]]:
    """Harm of every table's rows at the bound that is tried, and its standard error."""
    exact_B = run.logits(scored, run.exact)
    loss = mean_loss(exact_B, labels_of(scored))
    harms = []
    for t in range(len(run.names)):
        changed_B = run.logits(scored, _only(run, t, TableCodecs(forward=_noisy_codec(_TRIED_FORWARD))))
        harms.append(mean_share(curvature_harm(exact_B, changed_B), loss))
        run.done()
    return harms


def _coder(sampled: Sampled, codec: BlockCodec) -> Coder:
    """Return a coder with this codec for all parts of the tables."""
    blocks = sampled[0][0]
    return Coder([codec] * len(blocks.table_P), blocks.rows_RD.shape[1], torch.float32)


def _of_table(sampled: Sampled, t: int) -> NDArray[np.float32]:
    return np.concatenate([blocks.rows_RD[blocks.table_R == t] for blocks in chain.from_iterable(sampled)])
