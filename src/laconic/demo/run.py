"""The demonstration: plain training against Laconic's on generated data, over an ordinary network.

The AUC of so short a run is partly luck: another seed moves it by more than compression does. So
both methods are trained with several seeds, and the page shows each difference. Beside them it
shows how far plain runs are apart whose first weights differ by a millionth. Only the first seed
needs the slow network, for its seconds; bytes and AUC are the same on any.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from laconic import __version__, kernels
from laconic.demo.measure import RunFigures, step_ms
from laconic.demo.rank import BATCH, METHODS, NULL, SEEDS, STEPS, WARMUP, run_settings, what_laconic_sends
from laconic.errors import CommError
from laconic.lab import Lab, check
from laconic.machine import cores, cpu_model
from laconic.report.result import Comparison

__all__ = ["run_demo"]

_MBPS, _FAST_MBPS = 200, 10_000
_PROGRAM = ("-m", "laconic.demo.rank")


def run_demo(say: Callable[[str], None]) -> Comparison:
    """Train with both methods on as many hosts as there are cores; return the report's result."""
    hosts = max(2, cores())
    missing = [fact for fact in check(gloo=False) if fact.ok is False]
    timing: dict[str, RunFigures] = {}
    trained: dict[str, list[RunFigures]] = {method: [] for method in (*METHODS, NULL)}
    ranks = _ranks_in_lab(hosts) if not missing else _ranks_on_loopback(hosts)
    with ranks as events:
        for event in events:
            if "doing" in event:
                say(event["doing"])
            elif "timing" in event:
                timing = {
                    figures["method"]: RunFigures.model_validate(figures) for figures in event["timing"]
                }
            else:
                figures = RunFigures.model_validate(event["trained"])
                trained[figures.method].append(figures)
    wire = (
        "a network in namespaces, sends and receives"
        if not missing
        else f"loopback, not limited: {missing[0].detail}"
    )
    setting = {
        "hosts": hosts,
        "rate_mbit": _MBPS if not missing else "not limited",
        "wire": wire,
        "data": "generated, Criteo-shaped, 26 tables of up to 100,000 rows, Zipf 1.05",
        "model": "DLRM",
        "dim": run_settings("plain", hosts, 0).model.dim,
        "samples per rank": BATCH,
        "steps": STEPS,
        "steps of warm-up": WARMUP,
        "seeds": SEEDS,
        "laconic sends": what_laconic_sends(),
    }
    null = [figures.auc for figures in trained[NULL]]
    return Comparison.model_validate(
        {
            "title": f"Training DLRM on {hosts} hosts: plain against Laconic",
            "machine": _machine(),
            "setting": setting,
            "methods": [
                {**_method(name, timing, trained[name]), "null_auc": null if name == METHODS[0] else ()}
                for name in METHODS
            ],
            "tables": list(trained[METHODS[-1]][0].tables),
        }
    )


@contextmanager
def _ranks_in_lab(hosts: int) -> Iterator[Iterator[dict[str, Any]]]:
    """Run a rank on every host of a lab, and give their events; links are fast from seed 1 on."""
    with _file() as file, Lab(hosts=hosts, mbps=_MBPS) as lab:
        job = lab.start([sys.executable, *_PROGRAM, str(file)], pin_cores=True)

        def events() -> Iterator[dict[str, Any]]:
            for event in _follow(file, lambda: job.running):
                if event.get("seed") == 1:
                    lab.set_mbps(_FAST_MBPS)
                yield event
            job.wait().check()

        yield events()


@contextmanager
def _ranks_on_loopback(hosts: int) -> Iterator[Iterator[dict[str, Any]]]:
    """Run the ranks as processes of this machine, and give their events."""
    alike = ("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(hosts))
    with _file() as file, (file.parent / "log").open("w") as log:
        command = [sys.executable, "-m", "torch.distributed.run", *alike, *_PROGRAM, str(file)]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT) as process:

            def events() -> Iterator[dict[str, Any]]:
                yield from _follow(file, lambda: process.poll() is None)
                if process.returncode:
                    text = Path(log.name).read_text(errors="replace").strip()
                    raise CommError(f"demo: a rank ended before its work was done:\n{text[-2000:]}")

            try:
                yield events()
            finally:
                process.terminate()


@contextmanager
def _file() -> Iterator[Path]:
    with TemporaryDirectory(prefix="laconic-demo-") as folder:
        Path(folder).chmod(0o755)  # ranks of a lab may be another user
        file = Path(folder) / "events"
        file.touch()
        yield file


def _follow(file: Path, runs: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """Give the lines of a file as they are written, until the writer has ended."""
    with file.open() as lines:
        rest, more = "", True
        while more:
            more = runs()  # asked before reading: what is written last is read
            *complete, rest = (rest + lines.read()).split("\n")
            yield from map(json.loads, complete)
            if more:
                time.sleep(0.05)


def _machine() -> dict[str, str]:
    return {
        "cpu": cpu_model(),
        "cores": str(cores()),
        "kernels": kernels.active().name,
        "torch": str(torch.__version__),
        "laconic": __version__,
    }


def _method(name: str, timing: dict[str, RunFigures], seeds: list[RunFigures]) -> dict[str, Any]:
    trained = seeds[0]
    alone, times = step_ms(timing["alone"]), [t for round_ in timing[name].round_ms for t in round_]
    sizes = {}
    for direction in ("forward", "backward", "ids", "dense"):
        sizes[f"bytes_{direction}"] = getattr(trained, f"bytes_{direction}")
        sizes[f"bytes_{direction}_before"] = getattr(trained, f"before_{direction}")
    return {
        "name": name,
        "step_ms": times,
        "communication_share": max(0.0, 1 - alone / step_ms(timing[name])),
        **sizes,
        "auc": _mean([figures.auc for figures in seeds]),
        "log_loss": _mean([figures.log_loss for figures in seeds]),
        "seed_auc": [figures.auc for figures in seeds],
        "curve": [
            {**points[0], **{key: _mean([point[key] for point in points]) for key in ("loss", "auc")}}
            for points in zip(*(figures.curve for figures in seeds), strict=True)
        ],
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None
