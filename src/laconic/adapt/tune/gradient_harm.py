"""What rounding a table's gradients would cost at the end of a run, from a few short forks.

A fork trains some steps from one state, with one table's gradients rounded and without. Two things
are seen after it:

drift           Rounding is unbiased, but each step leaves its noise in the rows that it updates,
                and logits of unseen batches move away from the exact ones. What that does to the
                loss (``adapt.harm``) grows with every step. Earlier steps were larger, but some of
                their noise has been taken back since.

                harm = ADDS_UP * drift * (steps trained so far / steps of a fork)

lost learning   A row that is rarely looked up has no part in unseen batches. But noise makes
                Adagrad's steps shorter, and the fork's own batches are learnt less well. The share
                of learning that is lost, times how fast the loss still falls with the logarithm of
                the steps, is what the run will lack at its end.

                harm = COMES_TRUE * lost share * slope

Frequent rows drift, rare rows learn less; harm is the sum. Design note 0006 has what came true.

Now and then training takes another turn for no reason but that something was perturbed, which would
look like a large drift of a harmless table: the median of several forks does not know about it.

Shape legend: ``B`` samples, ``F`` forks, ``P`` plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laconic.adapt.harm import COMES_TRUE, curvature_harm, loss_change, mean_loss
from laconic.adapt.tune.run import RehearsedRun, labels_of
from laconic.data import Samples
from laconic.exchange.exchange_plan import ExchangePlan

__all__ = ["Progress", "gradient_harm"]

_ADDS_UP = 2.5

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far training is."""

    steps: int
    """Steps that were trained."""
    slope: float
    """Share of the loss that training takes off while steps grow e-fold."""


def gradient_harm(
    run: RehearsedRun,
    forks: Sequence[list[Samples]],
    scored: list[Samples],
    plans: Sequence[ExchangePlan],
    together: ExchangePlan,
    progress: Progress,
) -> list[tuple[float, float]]:
    """Harm of every plan as a share of the loss, and its standard error.

    ``together`` is all plans at once.
    """
    everything = [together, *plans]
    drift_FP = np.zeros((len(forks), len(everything)))
    lost_FP, doubt_FP = np.zeros_like(drift_FP), np.zeros_like(drift_FP)
    learnt = 0.0
    for f, fork in enumerate(forks):
        label_B = labels_of(fork)
        before = mean_loss(run.logits(fork, run.exact), label_B)
        with run.snapshot() as snapshot:
            run.train(fork, run.exact)
            unseen_B, own_B = run.logits(scored, run.exact), run.logits(fork, run.exact)
            loss = mean_loss(unseen_B, labels_of(scored))
            learnt += before - mean_loss(own_B, label_B)
            for p, plan in enumerate(everything):
                snapshot.go_back()
                run.train(fork, plan)
                harm_B = curvature_harm(unseen_B, run.logits(scored, run.exact))
                change_B = loss_change(own_B, run.logits(fork, run.exact), label_B)
                drift_FP[f, p] = float(harm_B.mean()) / loss
                lost_FP[f, p] = float(change_B.mean())
                doubt_FP[f, p] = float(change_B.std()) / len(change_B) ** 0.5
                run.done()
            snapshot.go_back()
    drift_P, drift_se_P = _median(drift_FP[:, 1:])
    lost_P, lost_se_P = _shares(lost_FP, doubt_FP, learnt)
    grown, scale = _ADDS_UP * progress.steps / len(forks[0]), COMES_TRUE * progress.slope
    harm_P = grown * drift_P + scale * lost_P
    se_P = np.hypot(grown * drift_se_P, scale * lost_se_P)
    return list(zip(harm_P.tolist(), se_P.tolist(), strict=True))


def _median(drift_FP: Floats) -> tuple[Floats, Floats]:
    """Median over forks, and its standard error from the median of the distances to it."""
    median_P = np.median(drift_FP, axis=0)
    distance_P = np.median(np.abs(drift_FP - median_P), axis=0)
    # a normal deviation is 1.4826 of these distances, and a median's error 1.2533 of a mean's
    return median_P, 1.858 * distance_P / len(drift_FP) ** 0.5


def _shares(lost_FP: Floats, doubt_FP: Floats, learnt: float) -> tuple[Floats, Floats]:
    """Share of all learning that each plan loses, and its standard error.

    The first plan is all of them together. Together they lose more than the sum of each by itself;
    the rest is laid to all in equal parts.
    """
    if learnt <= 0:
        zero_P = np.zeros(lost_FP.shape[1] - 1)
        return zero_P, zero_P
    together, *each = (lost_FP.sum(axis=0) / learnt).tolist()
    each_P = np.maximum(np.array(each), 0.0)
    unexplained = max(together - each_P.sum(), 0.0) / max(len(each), 1)
    return each_P + unexplained, np.sqrt((doubt_FP[:, 1:] ** 2).sum(axis=0)) / learnt
