"""DCT-DP on real data: test loss and bytes of dense gradients that send their large entries first.

Two real ranks train an epoch for every share dropped and every ``refresh``. Each run is paired with
exact gradients of the same seed. Embedding rows are exact. The dense optimizer is SGD, as in the
paper: with SGD, a memory that is sent at once is what would have been done meanwhile, but Adagrad
takes shorter steps for it::

    python -m benchmarks.data_parallel --data DIR [--dropped 0.98] [--refresh 1000] [--seeds 5]
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.harness import (
    append_line,
    data_parser,
    data_sets,
    grouped,
    mean_text,
    print_wide,
    recipe_for,
    table_of,
)
from benchmarks.training.worker import Epoch, TrainingPool
from laconic.adapt.settings import DenseMethod
from laconic.data import DataSettings
from laconic.demo.measure import RunFigures
from laconic.errors import PlanError
from laconic.train.settings import DenseSettings, ModelSettings

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
    """Mean bytes of dense gradients that a rank sends in a step."""
    bytes_ring: float

    @property
    def loss_change(self) -> float:
        """Relative to exact gradients."""
        return self.log_loss / self.exact_log_loss - 1

    @property
    def ratio(self) -> float:
        """Bytes of a dense ring over bytes sent."""
        return self.bytes_ring / self.bytes_dense


def measure_pairs(
    pool: TrainingPool,
    name: str,
    data: DataSettings,
    cases: Sequence[tuple[float, int]],
    seed: int,
    dense: DenseSettings,
) -> list[Pair]:
    """Train exactly, then with each case; ``dense`` says how the dense layers are trained."""

    def train(sends: DenseMethod) -> RunFigures:
        job = Epoch(
            data=data,
            model=_MODEL,
            method="rows_fp32_pairwise",
            batch=_BATCH // _RANKS,
            seed=seed,
            recipe=recipe_for(name),
            dense=dense,
            dense_sends=sends,
        )
        return pool.train_epoch(job)

    exact = train(DenseMethod(method="exact"))
    pairs = []
    for dropped, refresh in cases:
        found = train(DenseMethod(method="large", keep=1 - dropped, refresh=refresh, bound=0.3))
        losses, aucs = (found.log_loss, exact.log_loss), (found.auc, exact.auc)
        if None in (*losses, *aucs):
            raise PlanError(f"{name}: expected samples to evaluate on, got none; its split must leave some")
        pairs.append(
            Pair(
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
        )
    return pairs


def render(pairs: Sequence[Pair]) -> Table:
    """Make one row for each data set and case."""
    return table_of(
        "dense gradients that send their large entries first, against exact ones",
        grouped(pairs, lambda pair: (pair.data, pair.dropped, pair.refresh)).values(),
        ("data", lambda group: group[0].data),
        ("dropped", lambda group: f"{100 * group[0].dropped:g} %"),
        ("refresh", lambda group: str(group[0].refresh)),
        ("pairs", lambda group: str(len(group))),
        ("test loss (s.e.)", lambda group: mean_text([p.loss_change for p in group], "+.3%", ".3%")),
        ("AUC", lambda group: f"{statistics.fmean(pair.auc - pair.exact_auc for pair in group):+.5f}"),
        ("fewer bytes", lambda group: f"{statistics.fmean(pair.ratio for pair in group):.0f}x"),
    )


def main() -> None:
    """Run what the arguments say; every pair is a line of ``--json`` as soon as it is there."""
    parser = data_parser("python -m benchmarks.data_parallel")
    parser.add_argument("--dropped", type=float, action="append", help="share of entries, as 0.98")
    parser.add_argument("--refresh", type=int, action="append", help="steps between two looks at thresholds")
    parser.add_argument("--rate", type=float, default=0.1, help="of dense SGD")
    parser.add_argument("--optimizer", choices=("sgd", "adagrad", "adam"), default="sgd")
    given = parser.parse_args()
    console, pairs = Console(stderr=True), []
    cases = [(dropped, refresh) for dropped in given.dropped or [0.98] for refresh in given.refresh or [1000]]
    dense = DenseSettings(optimizer=given.optimizer, lr=given.rate)
    with data_sets(given.data) as sets, TrainingPool(_RANKS) as pool:
        for name in (name for name in sets if not given.sets or name in given.sets):
            for seed in range(given.seeds):
                for pair in measure_pairs(pool, name, sets[name], cases, seed, dense):
                    console.print(
                        f"{name}, seed {seed}, {100 * pair.dropped:g} % dropped: {100 * pair.loss_change:+.3f} %, {pair.ratio:.0f}x"
                    )
                    append_line(given.json, asdict(pair))
                    pairs.append(pair)
    print_wide(render(pairs))


if __name__ == "__main__":
    main()
