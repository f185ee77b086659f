"""Predicted bytes against rehearsed ones, for each data set, number of ranks and placement.

Frequencies are counted over the first samples of an epoch, and what the batches behind them send is predicted. A correlation is
measured, table by table, on the first batches behind those that were counted. Shape legend: ``T`` tables,
``B`` samples, ``R`` rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.data_sets import real_data_sets
from benchmarks.placement.traffic import predicted_bytes
from benchmarks.prediction.by_time import correlation_of
from laconic.cost.frequencies import Frequencies
from laconic.cost.load import Place
from laconic.cost.topology import Cluster
from laconic.cost.workload import TableLoad, Workload
from laconic.data import open_source
from laconic.data.source import Source
from laconic.exchange import Sgd, Table
from laconic.lookups import Lookups
from laconic.nn import RehearsedEmbeddings
from laconic.plan.solve.problem import Problem

__all__ = ["PLACEMENTS", "Outcome", "run_prediction_benchmark"]

PLACEMENTS = ("tables, pooled", "tables, rows", "rows dealt", "small replicated")
_SMALL_ROWS = 2000
_PROBES = 4  # batches that correlations are measured on


@dataclass(frozen=True, slots=True)
class Outcome:
    """Relative errors of one prediction."""

    data: str
    ranks: int
    placement: str
    counted: float
    """Share of the epoch that frequencies were counted on."""
    correlated: bool
    """Whether correlations were measured."""
    ids: float
    forward: float
    backward: float
    worst_table: float
    """Largest error of a table's rows and gradients together, of those that have a hundredth of all bytes."""


def run_prediction_benchmark(
    data: Path,
    *,
    ranks: Sequence[int] = (2, 4, 8),
    batch: int = 2048,
    dim: int = 16,
    steps: int = 12,
    counted: Sequence[float] = (0.1, 0.5),
) -> Iterator[Outcome]:
    """Yield outcomes as they are there; ``batch`` is a rank's."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, settings in real_data_sets(data, Path(scratch)).items():
            source = open_source(settings)
            total = source.samples_in("train")
            for share in counted:
                start = int(share * total)
                frequencies_T = _count(source, start)
                probes = islice(_lookups(source, batch, start), _PROBES)
                correlation_T = _correlations(frequencies_T, probes)
                for number in ranks:
                    ahead = list(islice(_lookups(source, batch * number, start), steps))
                    for placement in PLACEMENTS:
                        for c_T in (np.ones_like(correlation_T), correlation_T):
                            errors = _errors(source, frequencies_T, c_T, placement, number, batch, dim, ahead)
                            yield Outcome(name, number, placement, share, c_T is correlation_T, *errors)


def _lookups(source: Source, global_batch: int, start: int) -> Iterator[Lookups]:
    """Whole batches from there on."""
    batches = source.batches("train", global_batch=global_batch, rank=0, ranks=1, start=start)
    return (samples.lookups for samples in batches if samples.lookups.samples == global_batch)


def _count(source: Source, samples: int) -> list[Frequencies]:
    counts_TR = [np.zeros(rows, np.int64) for rows in source.schema.rows]
    lookups_T = np.zeros(len(counts_TR))
    seen = 0
    for batch in source.batches("train", global_batch=65536, rank=0, ranks=1):
        for t, ids in enumerate(_ids_of(batch.lookups)):
            counts_TR[t] += np.bincount(ids, minlength=len(counts_TR[t]))
            lookups_T[t] += len(ids)
        seen += batch.lookups.samples
        if seen >= samples:
            break
    per_sample_T = lookups_T / max(seen, 1)
    return [Frequencies.from_counts(c, float(n)) for c, n in zip(counts_TR, per_sample_T, strict=True)]


def _ids_of(lookups: Lookups) -> Iterator[NDArray[np.int64]]:
    ids, offsets = lookups.ids_L.numpy(), lookups.offsets.numpy()
    for t in range(lookups.tables):
        yield ids[offsets[t * lookups.samples] : offsets[(t + 1) * lookups.samples]]


def _correlations(frequencies_T: Sequence[Frequencies], probes: Iterable[Lookups]) -> NDArray[np.float64]:
    measured = [[(len(ids), len(np.unique(ids))) for ids in _ids_of(lookups)] for lookups in probes]
    mean_T2 = np.array(measured, np.float64).mean(axis=0)
    return np.array(
        [
            correlation_of(frequencies, lookups, distinct)
            for frequencies, (lookups, distinct) in zip(frequencies_T, mean_T2, strict=True)
        ]
    )


def _errors(
    source: Source,
    frequencies_T: Sequence[Frequencies],
    correlation_T: NDArray[np.float64],
    placement: str,
    ranks: int,
    batch: int,
    dim: int,
    ahead: Sequence[Lookups],
) -> tuple[float, float, float, float]:
    made = [_table(placement, f"t{t}", rows) for t, rows in enumerate(source.schema.rows)]
    embeddings = RehearsedEmbeddings(made, dim, ranks, optimizer=Sgd(rate=0.0)).train()
    for lookups in ahead:
        embeddings(lookups).sum().backward()
    loads = [
        TableLoad(
            name=table.name,
            frequencies=frequencies_T[t],
            correlation=float(correlation_T[t]),
            id_order="ranked",
        )
        for t, table in enumerate(made)
    ]
    problem = Problem(
        Cluster.alike(ranks, memory_gb=1, mbps=1), Workload(tables=tuple(loads), batch=batch, dim=dim)
    )
    choices = [
        Place(
            table.sharding,
            table.send,
            owner=int(embeddings.layout.first_T[t]) if table.sharding == "table" else None,
        )
        for t, table in enumerate(made)
    ]
    accounts = embeddings.ledger.accounts
    errors = [
        ranks * predicted / (accounts[direction].sent / len(ahead)) - 1
        for direction, predicted in predicted_bytes(problem, choices).items()
    ]
    rows_T = (accounts["forward"].after_T + accounts["backward"].after_T) / len(ahead)
    sent_T = [problem.load(t, choice).sent for t, choice in enumerate(choices)]
    predicted_T = ranks * np.array([sent.forward + sent.backward for sent in sent_T])
    large_T = rows_T > 0.01 * rows_T.sum()
    worst = float(np.abs(predicted_T[large_T] / rows_T[large_T] - 1).max())
    return errors[0], errors[1], errors[2], worst


def _table(placement: str, name: str, rows: int) -> Table:
    if placement == "small replicated" and rows <= _SMALL_ROWS:
        return Table(name=name, rows=rows, sharding="replicated")
    if placement in ("small replicated", "rows dealt"):
        return Table(name=name, rows=rows, sharding="row")
    return Table(name=name, rows=rows, send="pooled" if placement == "tables, pooled" else "rows")
