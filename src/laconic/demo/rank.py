"""One rank of the demonstration: ``python -m laconic.demo.rank FILE``.

The leading rank adds a line of JSON to the file for each event: ``doing`` is a text, ``timing`` has
figures of all methods, and ``trained`` has those of one run. The settings of runs are here too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from laconic.adapt.settings import CompressionSettings
from laconic.data import Source, SyntheticSettings, open_source
from laconic.demo.measure import (
    Pass,
    RunFigures,
    first_batches,
    measure_pass,
    rotated,
    run_figures,
    time_steps,
)
from laconic.train.ranks import Ranks, process_group
from laconic.train.settings import EmbeddingSettings, ModelSettings, RunSettings, TrainSettings
from laconic.train.trainer import Trainer

__all__ = ["BATCH", "METHODS", "NULL", "SEEDS", "STEPS", "WARMUP", "run_settings", "what_laconic_sends"]

METHODS = ("plain", "laconic")
NULL = "plain again, weights moved by 1e-6"
"""Run that differs from plain for no reason."""
BATCH, STEPS, SEEDS = 1024, 100, 3
_CURVE_EVERY = 25
WARMUP = 40
"""Steps over which learning rates rise. Without them the first steps decide where a run ends, and
any perturbation may change that."""
_NUDGE = 1e-6  # by which first weights of a null run differ
_ROUNDS, _STEPS_A_ROUND = 4, 4


def run_settings(method: str, hosts: int, seed: int) -> RunSettings:
    """Return the settings of a run; a plain one is table-wise and pooled, as in the DLRM paper."""
    plain = method == "plain"
    data = SyntheticSettings(
        kind="synthetic", cap=100_000, samples=STEPS * BATCH * hosts, eval_samples=20_000
    )
    exact = CompressionSettings.model_validate(
        {"rows": "exact", "gradients": "exact", "dense": "exact", "ids": False}
    )
    defaults = CompressionSettings()
    return RunSettings(
        data=data,
        model=ModelSettings(dim=32, bottom=(256, 128), top=(256, 128)),
        embeddings=EmbeddingSettings(sharding="table", send="pooled") if plain else EmbeddingSettings(),
        compression=exact if plain else defaults,
        train=TrainSettings(batch=BATCH, seed=seed, lr_warmup=WARMUP),
    )


def what_laconic_sends() -> str:
    """Say in words which bounds Laconic uses."""
    defaults = CompressionSettings()
    return (
        f"rows within {defaults.rows.bound:g} of the range of their table, gradients of rows within "
        f"{defaults.gradients.bound:g} of its root mean square (the mean table; wider where more rows are sent), "
        "gradients of layers within a ninth of each entry"
    )


def main() -> None:
    """Time steps, then train with every method and seed."""
    torch.set_num_threads(1)
    with process_group(timeout_s=600) as ranks:
        note = partial(_note, Path(sys.argv[1])) if ranks.leads else _nothing
        source = open_source(run_settings("plain", ranks.count, 0).data)
        note(doing="timing steps")
        note(timing=[figures.model_dump(mode="json") for figures in _timing(source, ranks)])
        for seed in range(SEEDS):
            for method in (*METHODS, NULL):
                note(doing=f"training {method}, seed {seed + 1} of {SEEDS}: {STEPS} steps", seed=seed)
                of = METHODS[0] if method == NULL else method
                trainer = Trainer(run_settings(of, ranks.count, seed), source.schema, ranks)
                if method == NULL:
                    _nudge(trainer.model.parameters())
                how = Pass(batch=BATCH, epoch=seed, curve_every=_CURVE_EVERY)
                figures = measure_pass(method, trainer, source, how)
                note(trained=figures.model_dump(mode="json"))


def _timing(source: Source, ranks: Ranks) -> list[RunFigures]:
    """Time the methods in alternation; ``alone`` is a rank's batch on a rank that sends nothing."""
    trainers = {"alone": Trainer(run_settings("plain", ranks.count, 0), source.schema, Ranks(0, 1))}
    for method in METHODS:
        trainers[method] = Trainer(run_settings(method, ranks.count, 0), source.schema, ranks)
    batches = first_batches(source, BATCH, ranks)
    names = list(trainers)
    rounds: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    for name in rotated(names, _ROUNDS):
        ranks.barrier()
        first = len(rounds[name]) * (_STEPS_A_ROUND + 1)
        rounds[name].append(time_steps(trainers[name], batches, first, _STEPS_A_ROUND))
    found = [run_figures(name, trainers[name], ranks, round_ms=tuple(rounds[name])) for name in names]
    for trainer in trainers.values():
        trainer.embeddings.close()
    return found


def _nudge(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Move the first weights by next to nothing, alike on all ranks."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=_NUDGE)


def _note(file: Path, **event: Any) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(event) + "\n")


def _nothing(**_: Any) -> None:
    """Write nothing: only the leading rank notes events."""


if __name__ == "__main__":
    main()
