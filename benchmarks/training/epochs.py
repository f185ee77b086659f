"""Accuracy and bytes on real data, by ranks on this machine whose links are not limited.

Accuracy rows are paired: one seed means the same first weights and the same order of batches
for every method. Byte rows use large batches and dimension 64, as SC'24 does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.training.driver import Driver
from benchmarks.training.jobs import Epoch
from benchmarks.training.recipe import recipe_for
from benchmarks.training.row import Row
from laconic.data import ParquetSettings, SyntheticSettings
from laconic.demo.measure import RunFigures
from laconic.train.settings import ModelSettings

__all__ = ["measure_accuracy", "measure_bytes"]

Data = ParquetSettings | SyntheticSettings
_RANKS = 4
_SMALL = ModelSettings(dim=16, bottom=(128, 64), top=(128, 64))
_LARGE = ModelSettings(dim=64, bottom=(128, 64), top=(128, 64))


def measure_accuracy(
    sets: dict[str, Data], methods: Sequence[str], seeds: int, say: Callable[[str], None]
) -> list[Row]:
    """Train every method once through each data set, for each seed; global batches of 1,024."""
    rows = []
    with Driver(_RANKS, lab=False) as driver:
        for name, data in sets.items():
            for seed in range(seeds):
                for method in methods:
                    say(f"accuracy: {name}, seed {seed}, {method}")
                    job = Epoch(
                        data=data,
                        model=_SMALL,
                        method=method,
                        batch=1024 // _RANKS,
                        seed=seed,
                        recipe=recipe_for(name),
                    )
                    answer = driver.train_epoch(job)
                    rows.append(_row("accuracy", name, method, seed, answer))
    return rows


def measure_bytes(
    sets: dict[str, Data], methods: Sequence[str], steps: int | None, say: Callable[[str], None]
) -> list[Row]:
    """Count what every method sends: 2,048 samples a rank, dimension 64; once through unless ``steps`` says less."""
    rows = []
    with Driver(_RANKS, lab=False) as driver:
        for name, data in sets.items():
            for method in methods:
                say(f"bytes: {name}, {method}")
                job = Epoch(data=data, model=_LARGE, method=method, batch=2048, steps=steps, evaluate=False)
                rows.append(_row("bytes", name, method, 0, driver.train_epoch(job)))
    return rows


def _row(kind: str, name: str, method: str, seed: int, answer: RunFigures) -> Row:
    return Row(
        kind="accuracy" if kind == "accuracy" else "bytes",
        data=name,
        method=method,
        hosts=_RANKS,
        seed=seed,
        bytes_forward=answer.bytes_forward,
        bytes_backward=answer.bytes_backward,
        bytes_ids=answer.bytes_ids,
        bytes_dense=answer.bytes_dense,
        auc=answer.auc,
        log_loss=answer.log_loss,
    )
