"""One rank of the demonstration: ``python -m laconic.demo.rank FILE``.

The leading rank adds a line of JSON to the file whenever there is something to say: ``doing``, a text; ``timing``, figures
of all methods; ``trained``, those of one run.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

from laconic.data import Source, open_source
from laconic.demo.measure import RunFigures, first_batches, measure_pass, run_figures, time_steps, turns
from laconic.demo.setting import BATCH, CURVE_EVERY, METHODS, SEEDS, STEPS, run_settings
from laconic.train.ranks import Ranks, process_group
from laconic.train.trainer import Trainer

_ROUNDS, _STEPS_A_TURN = 4, 4


def main() -> None:
    """Time steps, then train with every method and seed."""
    torch.set_num_threads(1)
    with process_group(timeout_s=600) as ranks:
        note = partial(_note, Path(sys.argv[1])) if ranks.leads else _nothing
        source = open_source(run_settings("plain", ranks.count, 0).data)
        note(doing="timing steps")
        note(timing=[figures.model_dump(mode="json") for figures in _timing(source, ranks)])
        for seed in range(SEEDS):
            for method in METHODS:
                note(doing=f"training {method}, seed {seed + 1} of {SEEDS}: {STEPS} steps", seed=seed)
                trainer = Trainer(run_settings(method, ranks.count, seed), source.schema, ranks)
                figures = measure_pass(
                    method, trainer, source, batch=BATCH, epoch=seed, curve_every=CURVE_EVERY
                )
                note(trained=figures.model_dump(mode="json"))


def _timing(source: Source, ranks: Ranks) -> list[RunFigures]:
    """Time the methods in turns; ``alone`` is a rank's batch on that rank, with nothing sent."""
    trainers = {"alone": Trainer(run_settings("plain", ranks.count, 0), source.schema, Ranks(0, 1))}
    for method in METHODS:
        trainers[method] = Trainer(run_settings(method, ranks.count, 0), source.schema, ranks)
    batches = first_batches(source, BATCH, ranks)
    names = list(trainers)
    rounds: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    for name in turns(names, _ROUNDS):
        ranks.barrier()
        first = len(rounds[name]) * (_STEPS_A_TURN + 1)
        rounds[name].append(time_steps(trainers[name], batches, first, _STEPS_A_TURN))
    found = [run_figures(name, trainers[name], ranks, round_ms=tuple(rounds[name])) for name in names]
    for trainer in trainers.values():
        trainer.embeddings.close()
    return found


def _note(file: Path, **event: Any) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(event) + "\n")


def _nothing(**_: Any) -> None:
    """Other ranks have nothing to say."""


if __name__ == "__main__":
    main()
