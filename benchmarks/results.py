"""What came out: ratios and how sure they are, on which machine, and tables for people."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from rich.console import Console, RenderableType
from rich.table import Table

from laconic import kernels
from laconic.machine import cores, cpu_model

Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)

# fmt: off
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Two-sided 95 % of Student's t for 1, 2, ... degrees of freedom."""
# fmt: on


class Interval(NamedTuple):
    """A ratio and its 95 % interval, whose ends are NaN where there is one pair; in JSON a list of three."""

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
    half = math.nan if error is None else _T95[min(len(ratios) - 1, len(_T95)) - 1] * error
    return Interval(mean, mean - half, mean + half)


def ratios_of_turns(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Compare the turns that both had: one may have had more of them."""
    both = min(len(ours), len(theirs))
    return paired_ratios([(mean,) for mean in ours[:both]], [(mean,) for mean in theirs[:both]])


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of a mean; None for a single value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def mean_text(values: Sequence[float], mean: str, error: str) -> str:
    """Write a mean, and its standard error in brackets if there is one, in these formats."""
    found = standard_error(values)
    return f"{statistics.fmean(values):{mean}}" + ("" if found is None else f" ({found:{error}})")


@dataclass(frozen=True, slots=True)
class Machine:
    """What a reader needs to judge a speed."""

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
    """Put rows that belong together next to each other; groups come in the order of their first rows."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def megabytes(size: float) -> str:
    """Write a number of bytes in MB, or in kB where that is little."""
    return f"{size / 1e6:.2f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def link_text(rate_mbit: float | None) -> str:
    """Name a link by its rate."""
    return "loopback" if rate_mbit is None else f"{rate_mbit:g} Mbit/s"


def print_wide(tables: RenderableType) -> None:
    """Print tables in at least 120 columns: a narrower console would cut their figures."""
    console = Console()
    console.width = max(console.width, 120)
    console.print(tables)
