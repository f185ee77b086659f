"""``python -m benchmarks hybrid``: a DLRM that is divided over two ranks and replicated twice, on four hosts of the lab.

``plain`` sends activations, their gradients and gradients of parameters as they are; ``hybrid`` the largest tenth of
the former and the largest hundredth of the latter (DCT, KDD'21, which reports 37 % less time), ``rounded`` the same
within a codec's bound. They are compared at the rate of links at which plain communicates for 60 % of its step. *Alone*
is the same computation on all ranks at once with nothing sent, so that ranks that share a core share it there as well.
Methods take turns in one run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.thresholding.hybrid.jobs import PARTS, Answer, Steps
from benchmarks.thresholding.hybrid.methods import METHODS
from benchmarks.thresholding.hybrid.plan import Plan
from benchmarks.thresholding.hybrid.row import Row, rows_of, step_ms
from benchmarks.worker_pool import WorkerPool

__all__ = ["SHARE", "parts_of", "run_hybrid_benchmark"]

SHARE = 0.6
"""Of a step that plain communicates for."""
_HOSTS = 2 * PARTS
_WORKER = "benchmarks.thresholding.hybrid.worker"
_FIRST_MBIT, _TOLERANCE, _PROBES = 800.0, 0.015, 4
Say = Callable[[str], None]


def parts_of(plans: Sequence[Plan], rate_mbit: float | None) -> int:
    """Return how often ``run_hybrid_benchmark`` says what it does."""
    return len(plans) * (2 if rate_mbit is not None else 3)


def run_hybrid_benchmark(
    plans: Sequence[Plan], *, rate_mbit: float | None, say: Say, lab: bool = True
) -> list[Row]:
    """Time all models at a rate, or at the one that gives plain its share.

    ``lab=False``: on loopback at no particular rate, which says nothing about links.
    """
    rows: list[Row] = []
    for plan in plans:
        first = rate_mbit or _FIRST_MBIT
        with WorkerPool(_WORKER, _HOSTS, rate_mbit=first if lab else None) as crew:
            say(f"{plan.name}: first steps")
            _time(crew, plan, tuple(METHODS), rounds=1, steps=plan.warmup)
            rate: float | None = first
            if not lab:
                rate = None
            elif rate_mbit is None:
                say(f"{plan.name}: looking for the rate")
                rate = _matching_rate(crew, plan)
            say(f"{plan.name}: timing")
            answers = _time(crew, plan, tuple(METHODS), rounds=plan.rounds, steps=plan.steps)
            rows += rows_of(answers, plan, hosts=_HOSTS, rate_mbit=rate)
    return rows


def _time(crew: WorkerPool, plan: Plan, methods: tuple[str, ...], *, rounds: int, steps: int) -> list[Answer]:
    job = Steps(
        methods=methods, data=plan.data, model=plan.model, batch=plan.batch, rounds=rounds, steps=steps
    )
    return crew.ask(job, Answer)


def _matching_rate(crew: WorkerPool, plan: Plan) -> float:
    """Find the rate at which plain has its share; what it takes beyond computing goes about with 1 / rate."""
    rate = _FIRST_MBIT
    for _ in range(_PROBES):
        alone, plain = (
            step_ms(answer) for answer in _time(crew, plan, ("alone", "plain"), rounds=3, steps=plan.steps)
        )
        if abs(1 - alone / plain - SHARE) <= _TOLERANCE:
            break
        wanted = alone / (1 - SHARE)
        rate = round(min(max(rate * max(plain - alone, 1.0) / (wanted - alone), 10), 10_000))
        crew.set_rate(rate)
    return rate
