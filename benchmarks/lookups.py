"""``python -m benchmarks lookups``: a step of one rank alone, against the usual CPU operators.

Every sample looks up a row of each of 26 tables of Criteo's cardinalities. A step looks up, takes
a gradient of the pooled rows, and updates rows::

    Laconic          ShardedEmbeddings on one rank, row-wise Adagrad, its default compression
    FBGEMM           SplitTableBatchedEmbeddingBags on the CPU, row-wise Adagrad
    EmbeddingBag     torch, sparse gradients, Adagrad

One thread. Times are CPU time of the whole process, because Laconic works in threads of its own.
Contenders take turns, and medians count.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from time import process_time

import torch
from rich.console import RenderableType
from torch import Tensor

from benchmarks.harness import table_of
from benchmarks.timing import one_core
from laconic.data import SyntheticSettings, open_source
from laconic.demo.measure import rotated
from laconic.exchange.tables.optimizer import RowwiseAdagrad
from laconic.exchange.tables.table import Table
from laconic.lookups import Lookups
from laconic.nn.sharded_embeddings import ShardedEmbeddings

__all__ = ["LookupTimes", "render", "run_lookup_benchmark"]

Say = Callable[[str], None]
Step = Callable[[Lookups, Tensor], None]
_CAP, _RATE, _BATCHES, _STEPS = 1 << 19, 0.02, 16, 8


@dataclass(frozen=True, slots=True)
class LookupTimes:
    """Nanoseconds a lookup of one contender."""

    contender: str
    dim: int
    batch: int
    ns: float
    of_fbgemm: float
    """As a multiple of FBGEMM's."""


def run_lookup_benchmark(*, dims: Sequence[int], batch: int, repeats: int, say: Say) -> list[LookupTimes]:
    """Time all contenders for each dimension."""
    source = open_source(SyntheticSettings(cap=_CAP, samples=_BATCHES * batch))
    rows = source.schema.rows
    parts = islice(source.batches("train", global_batch=batch, rank=0, ranks=1), _BATCHES)
    batches = [samples.lookups for samples in parts]
    found = []
    with one_core():
        torch.set_num_threads(1)
        for dim in dims:
            say(f"dimension {dim}")
            steps = {
                "Laconic": _ours(rows, dim),
                "FBGEMM": _fbgemm(rows, dim),
                "EmbeddingBag": _torch(rows, dim),
            }
            gradient_BTD = torch.randn(batch, len(rows), dim) * 1e-4
            taken: dict[str, list[float]] = {name: [] for name in steps}
            for turn, name in enumerate(rotated(list(steps), repeats + 1)):
                begin = process_time()
                for k in range(_STEPS):
                    steps[name](batches[(turn * _STEPS + k) % len(batches)], gradient_BTD)
                taken[name].append((process_time() - begin) / _STEPS / (batch * len(rows)))
            ns = {name: 1e9 * statistics.median(times[1:]) for name, times in taken.items()}
            found += [LookupTimes(name, dim, batch, ns[name], ns[name] / ns["FBGEMM"]) for name in steps]
    return found


def _ours(rows: Sequence[int], dim: int) -> Step:
    tables = [Table(name=f"c{t}", rows=count, dim=dim) for t, count in enumerate(rows)]
    embeddings = ShardedEmbeddings(tables, optimizer=RowwiseAdagrad(_RATE))

    def step(lookups: Lookups, gradient_BTD: Tensor) -> None:
        embeddings(lookups).backward(gradient_BTD)
        embeddings.optimizer.step()

    return step


def _fbgemm(rows: Sequence[int], dim: int) -> Step:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        EmbeddingLocation,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    bags = SplitTableBatchedEmbeddingBagsCodegen(
        [(count, dim, EmbeddingLocation.HOST, ComputeDevice.CPU) for count in rows],
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        learning_rate=_RATE,
    )

    def step(lookups: Lookups, gradient_BTD: Tensor) -> None:
        bags(lookups.ids_L, lookups.offsets).backward(gradient_BTD.flatten(1))

    return step


def _torch(rows: Sequence[int], dim: int) -> Step:
    bags = [torch.nn.EmbeddingBag(count, dim, mode="sum", sparse=True) for count in rows]
    optimizer = torch.optim.Adagrad([parameter for bag in bags for parameter in bag.parameters()], lr=_RATE)

    def step(lookups: Lookups, gradient_BTD: Tensor) -> None:
        ids_TB = lookups.ids_L.view(len(bags), -1)
        begin_B = torch.arange(ids_TB.shape[1])
        pooled = [bag(ids_B, begin_B) for bag, ids_B in zip(bags, ids_TB, strict=True)]
        optimizer.zero_grad()
        torch.stack(pooled, dim=1).backward(gradient_BTD)  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def render(times: Sequence[LookupTimes]) -> RenderableType:
    """Make a table with a line for each contender and dimension."""
    return table_of(
        "A lookup with its share of pooling, gradients and updates, on one core",
        times,
        ("contender", lambda row: row.contender),
        ("dimension", lambda row: str(row.dim)),
        ("samples", lambda row: f"{row.batch:,}"),
        ("a lookup", lambda row: f"{row.ns:.0f} ns"),
        ("of FBGEMM", lambda row: f"{row.of_fbgemm:.2f}x"),
    )
