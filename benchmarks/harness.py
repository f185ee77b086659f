"""What benchmarks share: data sets and how to train on them, ratios with their confidence, tables.

A data set is a Parquet file whose columns are named by convention: ``label``, ``c_*`` for ids,
``d_*`` for dense counts. A file ``NAME.toml`` beside ``NAME.parquet`` overrides the convention.

Learning rates are those that train a set best with exact communication. On The Complete Journey,
0.05 with a warm-up raises the AUC of an epoch from 0.974 to 0.983 and lowers its standard deviation
over seeds from 0.0033 to 0.0004. Without them, the first steps decide which of several plateaus a
run ends on, and any perturbation may change that.
"""

from __future__ import annotations

import json
import math
import statistics
from argparse import ArgumentParser
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from rich.console import Console, RenderableType
from rich.table import Table

from laconic import kernels
from laconic.adapt.settings import CompressionSettings
from laconic.data import DataSettings, ParquetSettings
from laconic.errors import ConfigError
from laconic.machine import cores, cpu_model
from laconic.train.settings import DenseSettings, EmbeddingSettings, ModelSettings, RunSettings, TrainSettings

Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)

# fmt: off
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Two-sided 95 % of Student's t for 1, 2, ... degrees of freedom."""
# fmt: on


class Interval(NamedTuple):
    """A ratio and its 95 % interval, NaN for a single pair; in JSON a list of three."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + ("" if math.isnan(self.low) else f" ({self.low:.3f} - {self.high:.3f})")


def paired_ratios(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Interval:
    """Compare ours with theirs, each pair the medians of one round."""
    ratios = [statistics.median(a) / statistics.median(b) for a, b in zip(ours, theirs, strict=True)]
    mean = statistics.fmean(ratios)
    error = standard_error(ratios)
    half = math.nan if error is None else _t95(len(ratios)) * error
    return Interval(mean, mean - half, mean + half)


def ratios_of_turns(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Compare the turns that both had: one may have had more of them."""
    both = min(len(ours), len(theirs))
    return paired_ratios([(mean,) for mean in ours[:both]], [(mean,) for mean in theirs[:both]])


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of a mean; None for a single value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return a mean, and half of its 95 % interval; NaN for a single value."""
    error = standard_error(values)
    return statistics.fmean(values), math.nan if error is None else _t95(len(values)) * error


def _t95(values: int) -> float:
    return _T95[min(values - 1, len(_T95)) - 1]


def mean_text(values: Sequence[float], mean: str, error: str) -> str:
    """Write a mean, and its standard error in brackets if there is one, in these formats."""
    found = standard_error(values)
    return f"{statistics.fmean(values):{mean}}" + ("" if found is None else f" ({found:{error}})")


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine's facts that a reader needs to judge a speed."""

    cpu: str
    cores: int
    kernels: str
    torch: str

    @classmethod
    def this(cls) -> Machine:
        """Look at the one that we run on."""
        return cls(cpu_model(), cores(), kernels.active().name, str(torch.__version__))

    def __str__(self) -> str:
        return f"{self.cpu}, {self.cores} cores, kernels {self.kernels}, torch {self.torch}"


def table_of(title: str, rows: Iterable[Row], *columns: tuple[str, Callable[[Row], str]]) -> Table:
    """Make a table of a line for each row: columns have a heading, and what they show of a row."""
    table = figures_table(title, *(heading for heading, _ in columns))
    for row in rows:
        table.add_row(*(cell(row) for _, cell in columns))
    return table


def figures_table(title: str, *headings: str) -> Table:
    """Return an empty table whose first column has names and whose others have figures."""
    table = Table(title=title, title_justify="left")
    for k, heading in enumerate(headings):
        table.add_column(heading, justify="right" if k else "left", no_wrap=True)
    return table


def grouped(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Group rows by a key; groups come in the order of their first rows."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def megabytes(size: float) -> str:
    """Write a number of bytes in MB, or in kB where that is little."""
    return f"{size / 1e6:.2f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def link_text(rate_mbit: float | None) -> str:
    """Name a link by its bandwidth."""
    return "loopback" if rate_mbit is None else f"{rate_mbit:g} Mbit/s"


def print_wide(tables: RenderableType) -> None:
    """Print tables in at least 120 columns: a narrower console would cut their figures."""
    console = Console()
    console.width = max(console.width, 120)
    console.print(tables)


_CONVENTION = """label = "label"

[[dense]]
columns = "d_*"
transform = "log1p_standardize"

[[categorical]]
columns = "c_*"

[split]
kind = "random"
fraction = 0.1
"""

Trial = TypeVar("Trial")
Outcome = TypeVar("Outcome")


def real_data_sets(folder: Path, scratch: Path) -> dict[str, ParquetSettings]:
    """Find the settings of each data set by name; ``scratch`` holds what is written for them."""
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise ConfigError(f"--data: no *.parquet in {str(folder)!r}; it needs columns label, c_* and d_*")
    sets = {}
    for file in files:
        columns = file.with_suffix(".toml")
        if not columns.exists():
            columns = scratch / f"{file.stem}.toml"
            columns.write_text(_CONVENTION)
        sets[file.stem] = ParquetSettings(kind="parquet", path=file.resolve(), columns=columns)
    return sets


@contextmanager
def data_sets(folder: Path | None, **generated: DataSettings) -> Iterator[Mapping[str, DataSettings]]:
    """Give the data sets of a folder by name, or the generated ones where there is no folder."""
    with TemporaryDirectory() as scratch:
        yield generated if folder is None else real_data_sets(folder, Path(scratch))


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """Learning rates, and the steps over which they warm up."""

    rows: float = 0.02
    dense: float = 0.02
    """Of Adagrad."""
    adam: float = 0.001
    """Of dense parameters where Adam trains them."""
    warmup: int = 0


_RECIPES = {"complete_journey": TrainingRecipe(rows=0.1, dense=0.01, warmup=200)}


def recipe_for(data: str) -> TrainingRecipe:
    """Return the recipe of a data set by its name."""
    return _RECIPES.get(data, TrainingRecipe())


def run_settings(
    name: str,
    data: DataSettings,
    model: ModelSettings,
    compression: CompressionSettings,
    *,
    batch: int,
    seed: int,
    optimizer: Literal["adagrad", "adam"] = "adagrad",
) -> RunSettings:
    """Return the settings of a run on a data set, by its recipe; the dense part's ``optimizer``."""
    recipe = recipe_for(name)
    dense_lr = {"adagrad": recipe.dense, "adam": recipe.adam}[optimizer]
    return RunSettings(
        data=data,
        model=model,
        embeddings=EmbeddingSettings(lr=recipe.rows),
        dense=DenseSettings(optimizer=optimizer, lr=dense_lr),
        compression=compression,
        train=TrainSettings(batch=batch, seed=seed, lr_warmup=recipe.warmup),
    )


def in_processes(
    run: Callable[[Trial], Outcome], trials: Sequence[Trial], processes: int | None = None
) -> Iterator[Outcome]:
    """Run trials in ``processes`` processes, by default one per core; outcomes come in order.

    0: in this one.
    """
    if processes == 0:
        yield from map(run, trials)
        return
    with ProcessPoolExecutor(processes or cores(), mp_context=get_context("spawn")) as pool:
        yield from pool.map(run, trials)


def data_parser(prog: str) -> ArgumentParser:
    """Make a parser of the arguments of benchmarks on real data: sets, seeds, a JSON file."""
    parser = ArgumentParser(prog=prog)
    parser.add_argument("--data", type=Path, required=True, help="folder of *.parquet")
    parser.add_argument(
        "--set", action="append", dest="sets", help="a data set by name; all if none is given"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="file that outcomes are appended to")
    return parser


def append_line(file: Path | None, record: Mapping[str, Any]) -> None:
    """Add a line of JSON to a file, if there is one."""
    if file is not None:
        with file.open("a") as lines:
            lines.write(json.dumps(record) + "\n")
