"""DCT-DP on real data: test loss and bytes of dense gradients that send their large entries first.

Two real ranks train an epoch for every share dropped and every ``refresh``, paired by seed with exact gradients; embedding
rows travel exactly. The dense optimizer is SGD, as in the paper: a memory that fills up and is sent at once is what
SGD would have done meanwhile, while Adagrad takes shorter steps for it::

    python -m benchmarks.thresholding.data_parallel --data DIR [--dropped 0.98] [--refresh 1000] [--seeds 5]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.data_sets import real_data_sets, recipe_for
from benchmarks.training.worker import Epoch, TrainingPool
from laconic.data import DataSettings
from laconic.demo.measure import RunFigures
from laconic.errors import PlanError
from laconic.train.settings import DenseSettings, ModelSettings

__all__ = ["Pair", "measure_pairs"]

_RANKS, _BATCH = 2, 1024
_MODEL = ModelSettings(dim=16, bottom=(512, 256), top=(512, 256))


@dataclass(frozen=True, slots=True)
class Pair:
    """An epoch with thresholds, and the same one without."""

    data: str
    dropped: float
    refresh: int
    seed: int
    log_loss: float
    exact_log_loss: float
    auc: float
    exact_auc: float
    bytes_dense: float
    """Sent by a rank in a step, on average."""
    bytes_ring: float

    @property
    def loss_change(self) -> float:
        """Relative to exact gradients."""
        return self.log_loss / self.exact_log_loss - 1

    @property
    def ratio(self) -> float:
        """Of a dense ring to what was sent."""
        return self.bytes_ring / self.bytes_dense


def measure_pairs(
    driver: TrainingPool,
    name: str,
    data: DataSettings,
    cases: Sequence[tuple[float, int]],
    seed: int,
    *,
    rate: float,
    optimizer: str = "sgd",
) -> list[Pair]:
    """Train exactly, and then with each share dropped and ``refresh``."""

    def train(**dense: object) -> RunFigures:
        settings = DenseSettings.model_validate({"optimizer": optimizer, "rate": rate, **dense})
        return driver.train_epoch(
            Epoch(
                data=data,
                model=_MODEL,
                method="rows_fp32_pairwise",
                batch=_BATCH // _RANKS,
                seed=seed,
                recipe=recipe_for(name),
                dense=settings,
            )
        )

    exact = train()
    return [
        _pair(
            name,
            dropped,
            refresh,
            seed,
            exact,
            train(send="large", keep=1 - dropped, refresh=refresh, bound=0.3),
        )
        for dropped, refresh in cases
    ]


def _pair(name: str, dropped: float, refresh: int, seed: int, exact: RunFigures, found: RunFigures) -> Pair:
    losses, aucs = (found.log_loss, exact.log_loss), (found.auc, exact.auc)
    if None in (*losses, *aucs):
        raise PlanError(f"{name}: expected samples to evaluate on, got none; its split must leave some")
    return Pair(
        data=name,
        dropped=dropped,
        refresh=refresh,
        seed=seed,
        log_loss=float(losses[0] or 0),
        exact_log_loss=float(losses[1] or 0),
        auc=float(aucs[0] or 0),
        exact_auc=float(aucs[1] or 0),
        bytes_dense=found.bytes_dense,
        bytes_ring=found.before_dense,
    )


def render(pairs: Sequence[Pair]) -> Table:
    """One row for each data set and case."""
    table = Table(title="dense gradients that send their large entries first, against exact ones")
    for column in ("data", "dropped", "refresh", "pairs", "test loss", "s.e.", "AUC", "fewer bytes"):
        table.add_column(column, justify="left" if column == "data" else "right")
    groups: dict[tuple[str, float, int], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault((pair.data, pair.dropped, pair.refresh), []).append(pair)
    for (data, dropped, refresh), group in groups.items():
        changes = [100 * pair.loss_change for pair in group]
        spread = statistics.stdev(changes) / len(changes) ** 0.5 if len(changes) > 1 else float("nan")
        table.add_row(
            data,
            f"{100 * dropped:g} %",
            str(refresh),
            str(len(group)),
            f"{statistics.mean(changes):+.3f} %",
            f"{spread:.3f}",
            f"{statistics.mean(pair.auc - pair.exact_auc for pair in group):+.5f}",
            f"{statistics.mean(pair.ratio for pair in group):.0f}x",
        )
    return table


def main() -> None:
    """Run what the arguments say; every pair is a line of ``--json`` as soon as it is there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.thresholding.data_parallel")
    parser.add_argument("--data", type=Path, required=True, help="folder of *.parquet")
    parser.add_argument(
        "--set", action="append", dest="sets", help="a data set by name; all if none is given"
    )
    parser.add_argument("--dropped", type=float, action="append", help="share of entries, as 0.98")
    parser.add_argument("--refresh", type=int, action="append", help="steps between two looks at thresholds")
    parser.add_argument("--rate", type=float, default=0.1, help="of dense SGD")
    parser.add_argument("--optimizer", choices=("sgd", "adagrad", "adam"), default="sgd")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="file that pairs are appended to")
    given = parser.parse_args()
    console, pairs = Console(stderr=True), []
    cases = [(dropped, refresh) for dropped in given.dropped or [0.98] for refresh in given.refresh or [1000]]
    with tempfile.TemporaryDirectory() as scratch, TrainingPool(_RANKS) as driver:
        for name, data in real_data_sets(given.data, Path(scratch)).items():
            if given.sets and name not in given.sets:
                continue
            for seed in range(given.seeds):
                found = measure_pairs(
                    driver, name, data, cases, seed, rate=given.rate, optimizer=given.optimizer
                )
                for pair in found:
                    console.print(
                        f"{name}, seed {seed}, {100 * pair.dropped:g} % dropped: {100 * pair.loss_change:+.3f} %, {pair.ratio:.0f}x"
                    )
                    if given.json is not None:
                        with given.json.open("a") as file:
                            file.write(json.dumps(asdict(pair)) + "\n")
                pairs += found
    Console().print(render(pairs))


if __name__ == "__main__":
    main()
