"""The demonstration: plain against Laconic on generated data, over a wire of ordinary speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from laconic import __version__
from laconic.bench.machine import Machine
from laconic.bench.training.driver import Driver
from laconic.bench.training.jobs import Answer, Epoch, Steps
from laconic.bench.training.row import step_ms
from laconic.data import SyntheticSettings
from laconic.lab import check
from laconic.machine import cores
from laconic.report.result import Result
from laconic.train.settings import ModelSettings

__all__ = ["run_demo"]

_METHODS = ("plain_pairwise", "laconic_pairwise")  # the wire that laconic train uses
_RATE_MBIT = 200
_BATCH, _STEPS, _EVALUATIONS = 1024, 180, 6


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
        trained = {}
        for method in _METHODS:
            say(f"training {method}: {_STEPS} steps")
            trained[method] = driver.train_epoch(
                Epoch(
                    data=data,
                    model=model,
                    method=method,
                    batch=_BATCH,
                    curve_every=_STEPS // _EVALUATIONS,
                )
            )
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
    }
    return Result.model_validate(
        {
            "title": f"Training DLRM on {hosts} hosts: plain against Laconic",
            "machine": {**{k: str(v) for k, v in asdict(Machine.this()).items()}, "laconic": __version__},
            "setting": setting,
            "methods": [_method(name, timing, trained[name]) for name in _METHODS],
            "tables": list(trained[_METHODS[-1]].tables),
        }
    )


def _method(name: str, timing: dict[str, Answer], trained: Answer) -> dict[str, Any]:
    alone, times = step_ms(timing["alone"]), [t for turn in timing[name].round_ms for t in turn]
    sizes = {}
    for direction in ("forward", "backward", "ids"):
        sizes[f"bytes_{direction}"] = getattr(trained, f"bytes_{direction}")
        sizes[f"bytes_{direction}_before"] = getattr(trained, f"before_{direction}")
    return {
        "name": name.removesuffix("_pairwise"),
        "step_ms": times,
        "communication_share": max(0.0, 1 - alone / step_ms(timing[name])),
        **sizes,
        "bytes_dense": trained.bytes_dense,
        "bytes_dense_before": trained.before_dense,
        "auc": trained.auc,
        "log_loss": trained.log_loss,
        "curve": list(trained.curve),
    }
