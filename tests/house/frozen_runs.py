"""Runs whose bytes and weights a restructuring may not change.

``python -m tests.house.frozen_runs --check`` repeats them; without ``--check`` it writes them down.

What torch computes differs in the last bit from one kind of processor to the next, so the file
names the processor it was written on. It is written from code that is known to be right, never by a
test.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("MKL_CBWR", "COMPATIBLE")  # as in tests/conftest.py

import torch

from laconic.train.checkpoint import newest_checkpoint
from tests.distributed.training import train, write_settings

FROZEN = Path(__file__).parent / "frozen" / "runs.json"

_PLANS = Path(__file__).parent / "frozen" / "plans"
_BOUNDED = ("compression.rows.bound=0.05", "compression.gradients.bound=0.7")
_DENSE = "compression.dense='exact'"  # was the default when they were frozen

RUNS: dict[str, tuple[int, Sequence[str]]] = {
    "default": (2, (_DENSE,)),
    "default on four ranks": (4, (_DENSE,)),
    "by table, pooled": (4, ("embeddings.sharding='table'", "embeddings.send='pooled'", _DENSE, *_BOUNDED)),
    "by table, rows, sgd": (
        2,
        ("embeddings.sharding='table'", "embeddings.optimizer='sgd'", _DENSE, *_BOUNDED),
    ),
    "exact": (
        2,
        (
            "compression.rows='exact'",
            "compression.gradients='exact'",
            "compression.ids=false",
            "compression.dense='lossless'",
        ),
    ),
    "lossless": (4, ("compression.rows='lossless'", "compression.gradients='lossless'", _DENSE)),
    "cast": (2, ("compression.rows='int8'", "compression.gradients='int8'", "compression.dense='bf16'")),
    "narrowing, unbiased, with rules": (
        2,
        (
            "compression.rows.rounding='unbiased'",
            "compression.decay.kind='linear'",
            "compression.decay.steps=8",
            "compression.warmup=2",
            "compression.tables={c0={rows='exact'}, c3={rows={bound=0.1}, gradients={bound=0.2}}}",
            "compression.dense='levels'",
            "model.kind='dcn_v2'",
        ),
    ),
    "guarded": (2, ("compression.budget=0.001", _DENSE, *_BOUNDED)),
    "large entries first": (2, ("compression.dense={method='large', keep=0.1}", *_BOUNDED)),
    "dense within a bound": (4, ("compression.dense='bounded'", *_BOUNDED)),
    "dense rounded": (2, ("compression.dense='rounded'", *_BOUNDED)),
    "hot, warm, cold, prefetched": (2, ("--plan", str(_PLANS / "two_ranks.toml"), _DENSE, *_BOUNDED)),
    "hot rows equal every three steps": (4, ("--plan", str(_PLANS / "four_ranks.toml"), _DENSE, *_BOUNDED)),
}


def outcome(name: str) -> dict[str, Any]:
    """Train; return mean bytes of a step, and digests of all losses and all that was trained."""
    ranks, words = RUNS[name]
    settings = [word for part in words if "=" in part for word in ("--set", part)]
    others = [part for part in words if "=" not in part]
    with TemporaryDirectory() as folder:
        path = write_settings(Path(folder), samples=500)
        train(ranks, Path(folder) / "logs", str(path), *settings, *others)
        metrics = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
        checkpoint = newest_checkpoint(Path(folder) / "run" / "checkpoints")
        assert checkpoint is not None
        lines = [_repeatable(json.loads(line)) for line in metrics]
        losses = [line.get("loss") or line.get("log_loss") for line in lines]
        return {
            "last": [line for line in lines if line["kind"] == "train"][-1],
            # without bytes: ids of the next step may or may not have been counted yet
            "losses": hashlib.sha256(json.dumps(losses).encode()).hexdigest(),
            "weights": _digest(_contents(checkpoint)),
        }


def processor() -> str:
    """Return what decides the last bits of torch's sums."""
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def _repeatable(line: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a clock measured."""
    return {
        key: _repeatable(value) if isinstance(value, dict) else value
        for key, value in line.items()
        if not key.endswith(("_s", "_ms", "per_s", "time", "seconds"))
    }


def _contents(checkpoint: Path) -> list[Any]:
    """Return what is in its files, by their names.

    Digests are of the time when a rank that held nothing back had a file that said so.
    """
    found = {file.name: torch.load(file, weights_only=True) for file in checkpoint.glob("*.pt")}
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    if "gradient_step" in manifest:
        step, ranks = manifest["gradient_step"], manifest["ranks"]
        for rank in range(ranks):
            found.setdefault(f"held-{rank}-of-{ranks}.pt", {"step": step, "rank": rank, "ranks": ranks})
    return [found[name] for name in sorted(found)]


def _digest(contents: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for content in contents:
        for name, value in _leaves(content):
            digest.update(name.encode())
            digest.update(
                value.numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value).encode()
            )
    return digest.hexdigest()


def _leaves(value: Any, name: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for key in value for leaf in _leaves(value[key], f"{name}/{key}")]
    if isinstance(value, list | tuple):
        return [leaf for key, item in enumerate(value) for leaf in _leaves(item, f"{name}/{key}")]
    return [(name, value)]


def main() -> int:
    """Write the file, or with ``--check`` compare with it."""
    found = {name: outcome(name) for name in RUNS}
    if sys.argv[1:] != ["--check"]:
        FROZEN.write_text(json.dumps({"processor": processor(), "runs": found}, indent=1) + "\n")
        return 0
    frozen = json.loads(FROZEN.read_text())
    if frozen["processor"] != processor():
        print(f"frozen on {frozen['processor']}, this is {processor()}: not comparable")
        return 1
    changed = [name for name in RUNS if found[name] != frozen["runs"][name]]
    for name in changed:
        print(f"{name}: was {frozen['runs'][name]}\n  is {found[name]}")
    print(f"{len(RUNS) - len(changed)} of {len(RUNS)} runs are as they were")
    return min(len(changed), 1)


if __name__ == "__main__":
    sys.exit(main())
