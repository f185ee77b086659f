"""The demonstration: plain against Laconic on generated data, over a wire of ordinary speed.

The AUC of so short a run is partly luck: change the seed, and it moves by more than compression moves it. So both methods
are trained with several seeds, and the page shows each difference. Only the first seed needs the slow wire, for its seconds;
bytes and AUC are the same on any.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.machine import Machine
from benchmarks.training.driver import Driver
from benchmarks.training.jobs import Answer, Epoch, Steps
from benchmarks.training.methods import FINE, FINE_GRADIENT_BOUND, FINE_ROW_BOUND
from benchmarks.training.recipe import Recipe
from benchmarks.training.row import step_ms
from laconic import __version__
from laconic.data import SyntheticSettings
from laconic.lab import check
from laconic.machine import cores
from laconic.report.result import Result
from laconic.train.settings import ModelSettings

__all__ = ["run_demo"]

_METHODS = ("plain_pairwise", FINE.name)  # the wire that laconic train uses
_RATE_MBIT, _UNHURRIED = 200, "10gbit"
_BATCH, _STEPS, _EVALUATIONS, _SEEDS = 1024, 100, 4, 3
_RECIPE = Recipe(warmup=40)
"""Without a warm-up first steps decide where a run ends, and any perturbation at all may change that."""


def run_demo(say: Callable[[str], None]) -> Result:
    """Train both ways on as many hosts as there are cores, and return what the report shows."""
    hosts = max(2, cores())
    missing = [fact for fact in check(gloo=False) if fact.ok is False]
    data = SyntheticSettings(
        kind="synthetic", cap=100_000, samples=_STEPS * _BATCH * hosts, eval_samples=20_000
    )
    model = ModelSettings(dim=32, bottom=(256, 128), top=(256, 128))
    with Driver(hosts, lab=not missing, rate=f"{_RATE_MBIT}mbit") as driver:
        say("timing steps")
        timing = driver.time_steps(
            Steps(
                data=data,
                model=model,
                methods=("alone", *_METHODS),
                batch=_BATCH,
                rounds=4,
                steps=4,
            )
        )
        trained: dict[str, list[Answer]] = {method: [] for method in _METHODS}
        for seed in range(_SEEDS):
            if seed == 1 and not missing:
                driver.set_rate(_UNHURRIED)
            for method in _METHODS:
                say(f"training {_name(method)}, seed {seed + 1} of {_SEEDS}: {_STEPS} steps")
                job = Epoch(
                    data=data,
                    model=model,
                    method=method,
                    batch=_BATCH,
                    seed=seed,
                    recipe=_RECIPE,
                    curve_every=_STEPS // _EVALUATIONS,
                )
                trained[method].append(driver.train_epoch(job))
    wire = (
        "a network in namespaces, sends and receives"
        if not missing
        else f"loopback, not limited: {missing[0].detail}"
    )
    setting = {
        "hosts": hosts,
        "rate_mbit": _RATE_MBIT if not missing else "not limited",
        "wire": wire,
        "data": "generated, Criteo-shaped, 26 tables of up to 100,000 rows, Zipf 1.05",
        "model": "DLRM",
        "dim": model.dim,
        "samples per rank": _BATCH,
        "steps": _STEPS,
        "steps of warm-up": _RECIPE.warmup,
        "seeds": _SEEDS,
        "laconic sends": _sent(),
    }
    return Result.model_validate(
        {
            "title": f"Training DLRM on {hosts} hosts: plain against Laconic",
            "machine": {**{k: str(v) for k, v in asdict(Machine.this()).items()}, "laconic": __version__},
            "setting": setting,
            "methods": [_method(name, timing, trained[name]) for name in _METHODS],
            "tables": list(trained[_METHODS[-1]][0].tables),
        }
    )


def _name(method: str) -> str:
    return method.partition("_")[0]


def _sent() -> str:
    """Say in words which bounds are used."""
    return (
        f"rows within {FINE_ROW_BOUND:g} of the range of their block, gradients of rows within {FINE_GRADIENT_BOUND:g} of its "
        "root mean square, gradients of layers within a ninth of each entry"
    )


def _method(name: str, timing: dict[str, Answer], seeds: list[Answer]) -> dict[str, Any]:
    trained = seeds[0]
    alone, times = step_ms(timing["alone"]), [t for turn in timing[name].round_ms for t in turn]
    sizes = {}
    for direction in ("forward", "backward", "ids"):
        sizes[f"bytes_{direction}"] = getattr(trained, f"bytes_{direction}")
        sizes[f"bytes_{direction}_before"] = getattr(trained, f"before_{direction}")
    return {
        "name": _name(name),
        "step_ms": times,
        "communication_share": max(0.0, 1 - alone / step_ms(timing[name])),
        **sizes,
        "bytes_dense": trained.bytes_dense,
        "bytes_dense_before": trained.before_dense,
        "auc": _mean([answer.auc for answer in seeds]),
        "log_loss": _mean([answer.log_loss for answer in seeds]),
        "seed_auc": [answer.auc for answer in seeds],
        "curve": [
            {**points[0], **{key: _mean([point[key] for point in points]) for key in ("loss", "auc")}}
            for points in zip(*(answer.curve for answer in seeds), strict=True)
        ],
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None
