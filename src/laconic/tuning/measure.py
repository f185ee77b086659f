"""Measure every table: bytes and errors at all bounds, and how much an error of each harms the loss.

Forward: the model scores held-out batches with one table's rows as they would arrive at some bound; the harm
done (``adapt.harm``) over the error of those rows is the table's sensitivity. There they are rounded without bias, so that errors know nothing of the
values; bounds are measured as they will be used, to the nearest.

Backward: short forks with one table's gradients rounded, see ``tuning.gradient_harm``.

Shape legend: ``T`` tables, ``R`` rows, ``D`` dimensions, ``B`` samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.adapt.curves import Curve, TableCurves
from laconic.adapt.harm import curvature_harm, mean_loss, mean_share
from laconic.adapt.homogenization import homogenization_index
from laconic.codecs import BoundedRows
from laconic.codecs.batch import BlockCodec
from laconic.data import Samples
from laconic.exchange import Ledger
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.exchange.rehearsal import RehearsedBatch
from laconic.exchange.update_error import UpdateError, relative_error_T
from laconic.tuning.gradient_harm import gradient_harm
from laconic.tuning.stage import Stage

__all__ = ["FORWARD_BOUNDS", "GRADIENT_BOUNDS", "Effort", "measure_tables"]

FORWARD_BOUNDS = (0.002, 0.004, 0.007, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24)
GRADIENT_BOUNDS = (0.06, 0.12, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
_TRIED_FORWARD, _TRIED_BACKWARD = 0.06, 2.0  # where sensitivities are measured: inside the grids

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    sampled_batches: int = 4
    """Whose bytes and errors are measured."""
    scored_batches: int = 8
    """On which losses are compared."""
    forks: int = 5
    fork_steps: int = 8
    """Trained with coarse and with exact gradients, in each fork."""

    @property
    def batches(self) -> int:
        """Of the data set, in all."""
        return self.sampled_batches + self.scored_batches + self.forks * self.fork_steps

    def count(self, tables: int) -> int:
        """Pieces of work that ``measure_tables`` reports."""
        return 2 + len(FORWARD_BOUNDS) + len(GRADIENT_BOUNDS) + tables + self.forks * (tables + 1)


def forward_codec(bound: float) -> BlockCodec:
    """Of rows."""
    return BoundedRows(bound=bound, relative=True)


def _noisy_codec(bound: float) -> BlockCodec:
    """Of rows whose errors shall know nothing of them."""
    return BoundedRows(bound=bound, relative=True, dither=0)


def backward_codec(bound: float) -> BlockCodec:
    """Of gradients."""
    return BoundedRows(bound=bound, relative="rms", dither=0)


def measure_tables(
    stage: Stage, effort: Effort, *, trained: int, slope: float, done: Callable[[], None]
) -> tuple[TableCurves, ...]:
    """Measure all tables at the stage's present state.

    ``trained``: steps that led to it. ``slope``: share of the loss that training takes off while the number of steps grows e-fold. ``done`` is called
    after each of ``effort.count`` pieces of work.
    """
    sampled = stage.take(effort.sampled_batches)
    forks = [stage.take(effort.fork_steps) for _ in range(effort.forks)]
    scored = stage.take(effort.scored_batches)
    rows, gradients = _sampled_rows(stage, sampled), _sampled_gradients(stage, sampled)
    done()
    tables = range(len(stage.names))
    tried = _Errors.of(stage, rows, "forward", _noisy_codec, (_TRIED_FORWARD,), done)
    tried_back = _Errors.of(stage, gradients, "backward", backward_codec, (_TRIED_BACKWARD,), lambda: None)
    harm_F = _forward_harm(stage, scored, done)
    harm_B = gradient_harm(
        stage,
        forks,
        scored,
        [_only(stage, t, None, _TRIED_BACKWARD) for t in tables],
        ExchangePlan((TableCodecs(backward=backward_codec(_TRIED_BACKWARD)),) * len(stage.names)),
        trained=trained,
        slope=slope,
        done=done,
    )
    sensitivity_F = [_per_error(harm_F[t], tried.errors[0, t]) for t in tables]
    sensitivity_B = [_per_error(harm_B[t], tried_back.errors[0, t]) for t in tables]
    rows_T = [np.concatenate([_of_table(batch, values, t) for batch, values in rows]) for t in tables]
    forward = _Errors.of(stage, rows, "forward", forward_codec, FORWARD_BOUNDS, done)
    backward = _Errors.of(stage, gradients, "backward", backward_codec, GRADIENT_BOUNDS, done)
    return tuple(
        TableCurves(
            name=table.name,
            rows=table.rows,
            forward=forward.curve(t, sensitivity_F[t]),
            backward=backward.curve(t, sensitivity_B[t]),
            homogenization=tuple(homogenization_index(rows_T[t], bound) for bound in FORWARD_BOUNDS),
        )
        for t, table in enumerate(stage.embeddings.layout.tables)
    )


def _per_error(harm: tuple[float, float], error: float) -> tuple[float, float]:
    """Sensitivity and its standard error, from the harm that came with an error."""
    return (harm[0] / error, harm[1] / error) if error else (0.0, 0.0)


Sampled = list[tuple[RehearsedBatch, Tensor]]


def _sampled_rows(stage: Stage, batches: list[Samples]) -> Sampled:
    exchange = stage.embeddings.exchange
    routed = [exchange.route(samples.lookups, coded=True, ledger=None) for samples in batches]
    return [(batch, exchange.forward(batch, stage.exact, 0, None)) for batch in routed]


def _sampled_gradients(stage: Stage, batches: list[Samples]) -> Sampled:
    """Gradients of these batches at the present state."""
    found: Sampled = []
    stage.embeddings.on_gradient = lambda batch, gradient_RD: found.append((batch, gradient_RD.clone()))
    try:
        for samples in batches:
            with stage.snapshot() as snapshot:
                stage.train([samples], stage.exact)
                snapshot.go_back()
    finally:
        stage.embeddings.on_gradient = None
    return found


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
        stage: Stage,
        sampled: Sampled,
        direction: Literal["forward", "backward"],
        codec: Callable[[float], BlockCodec],
        bounds: tuple[float, ...],
        done: Callable[[], None],
    ) -> _Errors:
        tables = len(stage.names)
        bytes_sent, errors = np.zeros((len(bounds), tables)), np.zeros((len(bounds), tables))
        before_T = np.zeros(tables)
        for i, bound in enumerate(bounds):
            ledger = stage.embeddings.ledger.like()
            error = UpdateError(tables)
            codecs = TableCodecs(**{direction: codec(bound)})
            plan = ExchangePlan((codecs,) * tables)
            for step, (batch, exact_RD) in enumerate(sampled):
                arrived_RD = _arrived(stage, batch, exact_RD, direction, plan, step, ledger)
                table_R = batch.table_of_sent
                sent = slice(len(table_R))
                error.add(table_R, exact_RD[sent].numpy(), arrived_RD[sent].numpy())
            account = ledger.accounts[direction]
            bytes_sent[i], before_T = account.after_T / len(sampled), account.before_T / len(sampled)
            errors[i] = relative_error_T(error.sums_4T)
            done()
        return cls(bounds, bytes_sent, errors, before_T)

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


def _arrived(
    stage: Stage,
    batch: RehearsedBatch,
    exact_RD: Tensor,
    direction: Literal["forward", "backward"],
    plan: ExchangePlan,
    step: int,
    ledger: Ledger,
) -> Tensor:
    """Return what arrives of rows or gradients."""
    exchange = stage.embeddings.exchange
    if direction == "forward":
        return exchange.forward(batch, plan, step, ledger)
    arrived_RD = exact_RD.clone()
    exchange.send_gradients(batch, plan, step, ledger, arrived_RD)
    return arrived_RD


def _only(stage: Stage, t: int, forward: float | None, backward: float | None) -> ExchangePlan:
    """Only one table is not exact."""
    codecs = TableCodecs(
        None if forward is None else _noisy_codec(forward),
        None if backward is None else backward_codec(backward),
    )
    return ExchangePlan(tuple(codecs if k == t else TableCodecs() for k in range(len(stage.names))))


def _forward_harm(stage: Stage, scored: list[Samples], done: Callable[[], None]) -> list[tuple[float, float]]:
    """Harm of every table's rows at the bound that is tried, and its standard error."""
    exact_B = stage.logits(scored, stage.exact)
    loss = mean_loss(exact_B, torch.cat([samples.label_B for samples in scored]))
    harms = []
    for t in range(len(stage.names)):
        changed_B = stage.logits(scored, _only(stage, t, _TRIED_FORWARD, None))
        harms.append(mean_share(curvature_harm(exact_B, changed_B), loss))
        done()
    return harms


def _of_table(batch: RehearsedBatch, rows_RD: Tensor, t: int) -> NDArray[np.float32]:
    table_R = batch.table_of_sent
    rows: NDArray[np.float32] = rows_RD[: len(table_R)].numpy()[table_R == t]
    return rows
