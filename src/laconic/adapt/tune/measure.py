"""Train a run briefly in rehearsal and measure its tables: bytes, errors and harm at all bounds.

All ranks are rehearsed, and everything they ask for travels, as on a large cluster. They train
within the default bounds, which do no harm that can be seen, and add up what rounding costs by
table (``exchange.noise``). Harm is in proportion to the mean square of errors. So what a table's
harm is at one bound, over its error there, is its sensitivity, and gives the harm at all bounds.

Bounds are shares of a table's range or root mean square, over all that was sampled. Shape legend:
``T`` tables, ``R`` rows, ``D`` dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from statistics import fmean
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.adapt.compression import Compression
from laconic.adapt.tune import MOST_STEPS, SHARE
from laconic.adapt.tune.curves import Curve, TableCurves, homogenization_index
from laconic.adapt.tune.run import RehearsedRun
from laconic.codecs import BoundedRows
from laconic.codecs.batch import BlockCodec
from laconic.data import Samples, Source
from laconic.errors import ConfigError
from laconic.exchange.coder import Coder
from laconic.exchange.errors_seen import UpdateError, relative_error_T
from laconic.exchange.scales import agrees_after
from laconic.exchange.sent_rows import Blocks, KeptBlocks

__all__ = ["FORWARD_BOUNDS", "GRADIENT_BOUNDS", "Effort", "Measured", "measure", "work_of"]

# fmt: off
FORWARD_BOUNDS = (
    0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.007, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24,
)
GRADIENT_BOUNDS = (0.015, 0.03, 0.04, 0.06, 0.09, 0.12, 0.18, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
# fmt: on

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    batches: int = 4
    """Batches after training whose bytes and errors are measured."""

    def count(self) -> int:
        """Pieces of work after training."""
        return 1 + len(FORWARD_BOUNDS) + len(GRADIENT_BOUNDS) + 2


@dataclass(frozen=True, slots=True)
class Measured:
    """What a rehearsal found."""

    tables: tuple[TableCurves, ...]
    ranks: int
    steps: int
    """Steps trained before measuring."""
    loss: float
    """Loss of batches before they were learnt, over the last tenth of the steps."""


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
    trained = next(steps for steps in range(trained, 0, -1) if agrees_after(steps))
    return trained, trained + effort.count()


def measure(run: RehearsedRun, steps: int) -> Measured:
    """Train a new run for some steps, after which ranks agree, then measure its tables."""
    losses: list[float] = []
    harmless = Compression().policy(run.names).plan
    for samples in run.stream(steps):
        losses += run.train([samples], harmless)
        run.done()
    loss = fmean(losses[-max(len(losses) // 10, 1) :])
    with run.under(harmless):
        cost = run.subject.rounding_cost()
    rows, gradients = _sample(run, run.take(Effort().batches))
    run.done()
    forward = _curves(run, rows, "forward", cost.rows_T / loss)
    backward = _curves(run, gradients, "backward", cost.gradients_T / loss)
    tables = tuple(
        TableCurves(
            name=table.name,
            rows=table.rows,
            forward=forward[t],
            backward=backward[t],
            homogenization=tuple(homogenization_index(_of_table(rows, t), bound) for bound in FORWARD_BOUNDS),
        )
        for t, table in enumerate(run.subject.tables)
    )
    return Measured(tables, run.ranks, steps, loss)


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


def _curves(
    run: RehearsedRun, sampled: Sampled, direction: Literal["forward", "backward"], harm_T: Floats
) -> list[Curve]:
    """Return curves of all tables from what they do at the default bounds, and what that harms."""
    tables = len(run.names)
    default, bounds = (
        (Compression().rows, FORWARD_BOUNDS)
        if direction == "forward"
        else (Compression().gradients, GRADIENT_BOUNDS)
    )
    assert isinstance(default, BoundedRows), "defaults are bounds"
    scale_T = _scales(sampled, tables, default)
    share_T = _shares(sampled, tables)
    tried = _travel(run, sampled, partial(_share_of, default, default.bound, scale_T * share_T))
    each = [_travel(run, sampled, partial(_share_of, default, bound, scale_T)) for bound in bounds]
    exact_T = sum(
        blocks.rows_RD.shape[1]
        * blocks.rows_RD.itemsize
        * np.bincount(blocks.table_P, blocks.counts_MP.sum(axis=0), tables)
        for blocks in chain.from_iterable(sampled)
    )
    return [
        Curve(
            bounds=bounds,
            bytes_sent=tuple(float(travelled.bytes_T[t]) for travelled in each),
            bytes_exact=float(exact_T[t]) / len(sampled),
            error=tuple(float(travelled.error_T[t]) for travelled in each),
            sensitivity=float(harm_T[t] / tried.error_T[t]) if tried.error_T[t] else 0.0,
            sensitivity_se=0.0,
        )
        for t in range(tables)
    ]


def _share_of(codec: BoundedRows, share: float, scale_T: Floats, t: int) -> BlockCodec | None:
    """Return the codec with a bound that is a share of a table's scale; None if that is 0."""
    bound = share * float(scale_T[t])
    return BoundedRows(bound, rounding=codec.rounding) if bound > 0 else None


def _scales(sampled: Sampled, tables: int, codec: BoundedRows) -> Floats:
    """Return what bounds are shares of: each table's range or root mean square, over all blocks."""
    low_T, high_T, squares_T, values_T = (np.full(tables, x) for x in (np.inf, -np.inf, 0.0, 0.0))
    for blocks in chain.from_iterable(sampled):
        rows_RD = blocks.rows_RD.astype(np.float64)
        np.minimum.at(low_T, blocks.table_R, rows_RD.min(axis=1))
        np.maximum.at(high_T, blocks.table_R, rows_RD.max(axis=1))
        squares_T += np.bincount(blocks.table_R, (rows_RD**2).sum(axis=1), tables)
        values_T += np.bincount(blocks.table_R, minlength=tables) * rows_RD.shape[1]
    range_T: Floats = np.where(values_T > 0, high_T - low_T, 0.0)
    rms_T: Floats = np.sqrt(squares_T / np.maximum(values_T, 1))
    return rms_T if codec.relative_to == "rms" else range_T


def _shares(sampled: Sampled, tables: int) -> Floats:
    """Root of the rows that a table sends, over those of the mean table: ``by_rows``."""
    rows_T = sum(np.bincount(blocks.table_R, minlength=tables) for blocks in chain.from_iterable(sampled))
    sent_T = np.asarray(rows_T, np.float64)
    some_T = sent_T[sent_T > 0]
    return np.sqrt(sent_T / some_T.mean()) if len(some_T) else sent_T


@dataclass(frozen=True, slots=True)
class _Travelled:
    """Bytes of a step and relative errors, by table."""

    bytes_T: Floats
    error_T: Floats


def _travel(run: RehearsedRun, sampled: Sampled, codec: Callable[[int], BlockCodec | None]) -> _Travelled:
    """Let what was sampled travel within these bounds."""
    tables = len(run.names)
    error, bytes_T = UpdateError(tables), np.zeros(tables)
    first = sampled[0][0]
    coder = Coder([codec(int(t)) for t in first.table_P], first.rows_RD.shape[1], torch.float32)
    for step, ranks in enumerate(sampled):
        for blocks in ranks:
            arrived_RD, bytes_MP = blocks.travel(coder, step)
            error.add_rows(blocks.table_R, blocks.rows_RD, arrived_RD)
            bytes_T += np.bincount(blocks.table_P, bytes_MP.sum(axis=0), tables)
    run.done()
    return _Travelled(bytes_T / len(sampled), relative_error_T(error.sums_4T))


def _of_table(sampled: Sampled, t: int) -> NDArray[np.float32]:
    return np.concatenate([blocks.rows_RD[blocks.table_R == t] for blocks in chain.from_iterable(sampled)])
