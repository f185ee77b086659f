"""``python -m benchmarks read``: CPU time of the data path against plain PyArrow, on one core.

Plain iteration reads the same columns row group by row group and hands each to numpy. The data path
also shuffles, checks, transforms and gathers batches from 64 streams. CPU time is that of the whole
process, so the thread that decodes ahead is in it.

Every turn reads plainly and then as one of ``N`` ranks for each ``N``, another rank each turn. An
epoch that is not timed comes first, in which memory is touched and odd values are counted. What is
read is what the kernel counts (``rchar``). Times are medians.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import RenderableType

from benchmarks.harness import megabytes, table_of
from benchmarks.timing import one_core
from laconic.data import SyntheticSettings
from laconic.data.columns import CategoricalColumns, ColumnSettings, DenseColumns, RandomSplit
from laconic.data.parquet import Parquet

__all__ = ["Reading", "render", "run_reading_benchmark", "write_files"]

Say = Callable[[str], None]
RANKS = (1, 2, 4, 8)
_FILES, _INTEGERS, _FLOATS = 16, 7, 6
_COLUMNS = ColumnSettings(
    label="label",
    dense=(DenseColumns(columns="d_*"),),
    categorical=(CategoricalColumns(columns="c_*"),),
    split=RandomSplit(fraction=0.0),
)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one of so many ranks reads in an epoch."""

    ranks: int
    samples: int
    bytes_read: int
    """Bytes that the process read from files."""
    cpu_s: float
    plain_cpu_s: float
    """CPU seconds of plain iteration over as many samples."""
    rows_per_cpu_s: float
    share_of_plain: float
    """Rows a second, as a share of those of plain iteration."""


def run_reading_benchmark(
    *, rows: int, row_group: int, batch: int, compression: str, repeats: int, say: Say
) -> list[Reading]:
    """Write files into a temporary folder, and read them in turns."""
    with TemporaryDirectory() as folder, _one_thread_of_arrow(), one_core():
        say(f"writing {rows:,} samples")
        write_files(Path(folder), rows, row_group, compression)
        source = Parquet([folder], _COLUMNS)
        taken: dict[int, list[tuple[int, int, float, float]]] = defaultdict(list)
        _read(source, 0, 1, batch, 0)
        _read_plainly(Path(folder))
        for turn in range(repeats):
            say(f"turn {turn + 1} of {repeats}")
            begin = process_time()
            total = _read_plainly(Path(folder))
            plain_s = process_time() - begin
            for ranks in RANKS:
                before, begin = _bytes_read(), process_time()
                samples = _read(source, turn % ranks, ranks, batch, 1 + turn)
                cpu_s = process_time() - begin
                taken[ranks].append((samples, _bytes_read() - before, cpu_s, plain_s * samples / total))
    return [_summary(ranks, turns) for ranks, turns in taken.items()]


def _summary(ranks: int, turns: Sequence[tuple[int, int, float, float]]) -> Reading:
    samples, nbytes, cpu_s, plain_s = (statistics.median(values) for values in zip(*turns, strict=True))
    return Reading(
        ranks=ranks,
        samples=int(samples),
        bytes_read=int(nbytes),
        cpu_s=cpu_s,
        plain_cpu_s=plain_s,
        rows_per_cpu_s=samples / cpu_s,
        share_of_plain=plain_s / cpu_s,
    )


def _read(source: Parquet, rank: int, ranks: int, batch: int, epoch: int) -> int:
    batches = source.batches("train", global_batch=batch, rank=rank, ranks=ranks, epoch=epoch)
    return sum(len(samples) for samples in batches)


def _read_plainly(folder: Path) -> int:
    rows = 0
    for path in sorted(folder.iterdir()):
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, use_threads=False)
                for column in table.columns:
                    column.to_numpy()
                rows += table.num_rows
    return rows


def _bytes_read() -> int:
    """Return how many bytes this process has read from files so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


@contextmanager
def _one_thread_of_arrow() -> Iterator[None]:
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        yield
    finally:
        pa.set_cpu_count(threads)


def write_files(folder: Path, rows: int, row_group: int, compression: str) -> None:
    """Write a label, 13 dense features and 26 of Criteo's cardinalities, some values frequent."""
    for file in range(_FILES):
        draw = np.random.default_rng(file)
        count = (file + 1) * rows // _FILES - file * rows // _FILES
        columns: dict[str, NDArray[Any]] = {"label": (draw.random(count) < 0.03).astype(np.uint8)}
        for k in range(_INTEGERS + _FLOATS):
            number = np.floor(np.exp(draw.normal(2.0, 1.5, count)))
            columns[f"d_{k}"] = (
                number.astype(np.int32) if k < _INTEGERS else np.log1p(number).astype(np.float32)
            )
        for k, ids in enumerate(SyntheticSettings().rows):
            columns[f"c_{k}"] = np.expm1(draw.random(count) * np.log(ids)).astype(np.int32)
        path = folder / f"{file:02}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=row_group, compression=compression)


def render(readings: Sequence[Reading]) -> RenderableType:
    """Make a table with a line for each number of ranks."""
    return table_of(
        "What one rank reads in an epoch, on one core",
        readings,
        ("ranks", lambda row: str(row.ranks)),
        ("samples", lambda row: f"{row.samples:,}"),
        ("read", lambda row: megabytes(row.bytes_read)),
        ("CPU", lambda row: f"{row.cpu_s:.2f} s"),
        ("plain PyArrow", lambda row: f"{row.plain_cpu_s:.2f} s"),
        ("samples a CPU second", lambda row: f"{row.rows_per_cpu_s / 1e6:.2f} M"),
        ("of plain", lambda row: f"{row.share_of_plain:.2f}x"),
    )
