"""Latency: the time of a batch in the engine on one thread, with one part in another precision.

Precisions alternate with fp32, and the least time of several rounds counts: a noisy machine makes
calls longer, never shorter. The time of a lookup does not depend on the contents of rows, so a
table is made of copies of one row. Nor does it depend much on how large a large table is: one of
more than 32 MB in fp32 is timed with fewer rows, and ids shrink alike.

Shape legend: ``B`` samples, ``V`` vectors, ``R`` rows, ``W`` bytes of a stored row, ``D`` numbers
of a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from laconic import kernels
from laconic.data import Samples
from laconic.lookups import Lookups
from laconic.quantize.formats import Artifact, Recipe, quantize_model
from laconic.quantize.formats.layers import Observed, quantize_layer
from laconic.quantize.formats.recipe import LayerPrecision, TablePrecision
from laconic.quantize.formats.rows import quantize_rows
from laconic.quantize.formats.trained_model import TrainedModel, linear_layers
from laconic.quantize.search.candidates import LAYER_CANDIDATES, TABLE_CANDIDATES, Candidate, ModelPart
from laconic.quantize.search.workbench import joined, select, thinned
from laconic.serve import Engine
from laconic.serve.dense_network import DenseNetwork

__all__ = ["Stopwatch", "engine_us", "small_batches"]

_BATCHES = 8
_ROUNDS = 8
_TABLE_BYTES = 1 << 25  # most of a table in fp32, or of all tables of an engine


class Stopwatch:
    """Times candidates: microseconds of a batch, less those with the part in fp32."""

    def __init__(
        self,
        trained: TrainedModel,
        samples: tuple[Samples, ...],
        observed: Mapping[str, Observed],
        batch: int,
    ) -> None:
        self._trained, self._observed = trained, observed
        self._batches = small_batches(samples, batch)
        self._rows = _shrunk_rows(trained, _TABLE_BYTES)
        self._lookups = _shrunk(trained, self._batches, self._rows)
        self._embeddings = list(trained.embed_batches(samples.lookups for samples in self._batches))
        self._layers = linear_layers(trained.dense_model())
        self._exact = {name: self._layer(name, LayerPrecision()) for name in self._layers}
        self._known: dict[tuple[ModelPart, str], float] = {}

    def __call__(self, candidate: Candidate) -> float:
        """Return the time of a candidate; below 0 is faster than fp32.

        All candidates of a part are timed at its first use, in alternation. Ranges do not matter.
        """
        part, precision = candidate.part, candidate.precision
        precisions = TABLE_CANDIDATES if isinstance(precision, TablePrecision) else LAYER_CANDIDATES
        if (part, _plain(precision)) not in self._known:
            contenders: dict[str, TablePrecision | LayerPrecision] = {}
            for other in (*precisions, precision):
                contenders.setdefault(_plain(other), other)
            exact_us, *times = _least_us(*(self._calls(part, other) for other in contenders.values()))
            for name, us in zip(contenders, [exact_us, *times], strict=True):
                self._known[part, name] = us - exact_us
        return self._known[part, _plain(precision)]

    def _calls(
        self, part: ModelPart, precision: TablePrecision | LayerPrecision
    ) -> list[Callable[[], object]]:
        if isinstance(precision, TablePrecision):
            return self._look_ups(part.name, precision)
        return self._network({**self._exact, part.name: self._layer(part.name, precision)})

    def _look_ups(self, name: str, precision: TablePrecision) -> list[Callable[[], object]]:
        t = self._trained.features.table_names.index(name)
        lookups = [each.table(t) for each in self._lookups]
        dim = self._trained.shape.dim
        stored_RW = quantize_rows(torch.zeros(1, dim), precision.format).repeat(self._rows[t], 1)
        chosen = kernels.active()
        tables = chosen.row_tables(dim)
        tables.add(stored_RW.numpy(), precision.format.code)
        mean = self._trained.shape.pooling == "mean"
        calls: list[Callable[[], object]] = []
        for ids_L, offsets in lookups:
            out_BVD = np.empty((len(offsets) - 1, 1, dim), np.float32)
            arrays = ids_L.contiguous().numpy(), offsets.contiguous().numpy()
            bags = kernels.RowBags(*arrays, mean=mean)
            calls.append(partial(chosen.embedding_bags, tables, bags, None, out_BVD, 0, 1))
        return calls

    def _network(self, layers: Mapping[str, dict[str, Tensor]]) -> list[Callable[[], object]]:
        shape = self._trained.shape
        network = DenseNetwork(shape, layers, kernels.active(), 1)
        calls: list[Callable[[], object]] = []
        for samples, embeddings_BTD in zip(self._batches, self._embeddings, strict=True):
            own_BVD = torch.zeros(len(samples), network.own_vectors, shape.dim)
            vectors_BVD = torch.cat([own_BVD, embeddings_BTD], dim=1).numpy()
            calls.append(partial(network.logits, samples.dense_BF.contiguous().numpy(), vectors_BVD))
        return calls

    def _layer(self, name: str, precision: LayerPrecision) -> dict[str, Tensor]:
        return quantize_layer(name, self._layers[name], precision, self._observed.get(name))


def engine_us(
    trained: TrainedModel, artifact: Artifact, samples: tuple[Samples, ...], batch: int
) -> tuple[float, ...]:
    """Return the microseconds of a batch in the engine on one thread, in fp32 and as quantized."""
    batches = small_batches(samples, batch)
    rows = _shrunk_rows(trained, _TABLE_BYTES // trained.shape.tables)
    shrunk = _shrunk(trained, batches, rows)
    names = trained.features.table_names
    few = {name: artifact.tables[name][:count] for name, count in zip(names, rows, strict=True)}
    engines = [Engine(_exact(trained, rows)), Engine(replace(artifact, tables=few))]
    return _least_us(
        *(
            [
                partial(engine.logits, small.dense_BF.contiguous().numpy(), lookups)
                for small, lookups in zip(batches, shrunk, strict=True)
            ]
            for engine in engines
        )
    )


def _shrunk_rows(trained: TrainedModel, table_bytes: int) -> list[int]:
    """Return the rows with which each table is timed: as many as have so many bytes in fp32."""
    most = max(table_bytes // (4 * trained.shape.dim), 1)
    return [min(table.rows, most) for table in trained.features.tables]


def _shrunk(trained: TrainedModel, batches: Sequence[Samples], rows: Sequence[int]) -> list[Lookups]:
    """Shrink the ids of all batches to tables of so many rows; they keep their order."""
    whole = [table.rows for table in trained.features.tables]
    return [
        Lookups(
            torch.cat([samples.lookups.table(t)[0] * rows[t] // whole[t] for t in range(len(rows))]),
            samples.lookups.offsets,
            len(rows),
        )
        for samples in batches
    ]


def _exact(trained: TrainedModel, rows: Sequence[int]) -> Artifact:
    """Return the model in fp32 with the first rows of each table."""
    names = trained.features.table_names
    tables = {
        name: trained.tables[name][:count].view(torch.uint8) for name, count in zip(names, rows, strict=True)
    }
    return quantize_model(trained, Recipe.uniform(names, trained.shape.layer_names()), tables=tables)


def small_batches(samples: tuple[Samples, ...], batch: int) -> list[Samples]:
    """Make some batches of the size that is served, from samples spread over all."""
    some = joined(list(thinned(samples, batch * _BATCHES)))
    size = min(batch, len(some))
    return [select(some, torch.arange(begin, begin + size)) for begin in range(0, len(some) - size + 1, size)]


def _plain(precision: TablePrecision | LayerPrecision) -> str:
    """Name a precision without its ranges, which do not change its time."""
    return precision.model_dump_json(exclude={"ranges"})


def _least_us(*contenders: Sequence[Callable[[], object]]) -> tuple[float, ...]:
    """Return the mean over calls of the least time of each, for every contender.

    Contenders alternate; the first round is not counted.
    """
    least = [[math.inf] * len(calls) for calls in contenders]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for round_ in range(_ROUNDS + 1):
            for calls, times in zip(contenders, least, strict=True):
                for k, call in enumerate(calls):
                    begun = perf_counter()
                    call()
                    if round_:
                        times[k] = min(times[k], perf_counter() - begun)
    finally:
        torch.set_num_threads(threads)
    return tuple(1e6 * fmean(times) for times in least)
