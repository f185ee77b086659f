"""How long a batch takes in the engine on one thread, part by part, beside fp32.

Formats take turns with fp32, and of every batch the least time of several rounds counts: a noisy machine makes calls
longer, never shorter. Contents do not matter to the time of a lookup, so a table is as many copies of one row, in memory of
their own. Shape legend: ``B`` samples, ``F`` dense features, ``V`` vectors, ``R`` rows, ``W`` bytes of one, ``D`` numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from laconic import kernels
from laconic.data import Samples
from laconic.quantize.formats import Artifact
from laconic.quantize.formats.layers import Observed, quantize_layer
from laconic.quantize.formats.recipe import LayerChoice, TableChoice
from laconic.quantize.formats.rows import RowFormat, quantize_rows
from laconic.quantize.formats.trained_model import TrainedModel, linear_layers
from laconic.quantize.search.candidates import LAYER_CANDIDATES, TABLE_CANDIDATES, Candidate, ModelPart
from laconic.quantize.search.workbench import joined, select, thinned
from laconic.serve import Engine
from laconic.serve.dense_network import DenseNetwork

__all__ = ["Stopwatch", "engine_us", "small_batches"]

_BATCHES = 8
_ROUNDS = 8


class Stopwatch:
    """Microseconds that a batch takes more when one part is not fp32; below 0 is faster."""

    def __init__(
        self,
        trained: TrainedModel,
        samples: tuple[Samples, ...],
        observed: Mapping[str, Observed],
        batch: int,
    ) -> None:
        self._trained, self._observed = trained, observed
        self._batches = small_batches(samples, batch)
        self._embeddings = [trained.embed(part.lookups) for part in self._batches]
        self._layers = linear_layers(trained.dense_part())
        self._exact = {name: self._parts(name, LayerChoice()) for name in self._layers}
        self._known: dict[tuple[ModelPart, str], float] = {}

    def __call__(self, candidate: Candidate) -> float:
        """Time a candidate; ranges have no influence on it, and those of one part take turns with one another."""
        part, choice = candidate.part, candidate.choice
        choices = TABLE_CANDIDATES if isinstance(choice, TableChoice) else LAYER_CANDIDATES
        if (part, _plain(choice)) not in self._known:
            contenders: dict[str, TableChoice | LayerChoice] = {}
            for other in (*choices, choice):
                contenders.setdefault(_plain(other), other)
            exact_us, *times = _least_us(*(self._calls(part, other) for other in contenders.values()))
            for name, us in zip(contenders, [exact_us, *times], strict=True):
                self._known[part, name] = us - exact_us
        return self._known[part, _plain(choice)]

    def _calls(self, part: ModelPart, choice: TableChoice | LayerChoice) -> list[Callable[[], object]]:
        if isinstance(choice, TableChoice):
            return self._look_ups(part.name, choice)
        return self._network({**self._exact, part.name: self._parts(part.name, choice)})

    def _look_ups(self, name: str, choice: TableChoice) -> list[Callable[[], object]]:
        t = self._trained.features.table_names.index(name)
        bags = [samples.lookups.table(t) for samples in self._batches]
        rows_RD, dim = self._trained.tables[name], self._trained.shape.dim
        stored_RW = rows_RD.contiguous().view(torch.uint8)
        if choice.format is not RowFormat.FP32:
            stored_RW = quantize_rows(torch.zeros(1, dim), choice.format).repeat(len(rows_RD), 1)
        chosen = kernels.active()
        tables = chosen.row_tables(dim)
        tables.add(stored_RW.numpy(), choice.format.code)
        mean = self._trained.shape.pooling == "mean"
        calls: list[Callable[[], object]] = []
        for ids_L, offsets in bags:
            out_BVD = np.empty((len(offsets) - 1, 1, dim), np.float32)
            arrays = ids_L.contiguous().numpy(), offsets.contiguous().numpy()
            calls.append(partial(chosen.embedding_bags, tables, *arrays, None, mean, None, out_BVD, 0, 1))
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

    def _parts(self, name: str, choice: LayerChoice) -> dict[str, Tensor]:
        layer = self._layers[name]
        return quantize_layer(f"layer {name!r}", layer.weight, layer.bias, choice, self._observed.get(name))


def engine_us(artifacts: Sequence[Artifact], samples: tuple[Samples, ...], batch: int) -> tuple[float, ...]:
    """Microseconds of a batch in the engine, on one thread, of each artifact."""
    batches = small_batches(samples, batch)
    engines = [Engine(artifact) for artifact in artifacts]
    return _least_us(
        *(
            [partial(engine.logits, part.dense_BF.contiguous().numpy(), part.lookups) for part in batches]
            for engine in engines
        )
    )


def small_batches(samples: tuple[Samples, ...], batch: int) -> list[Samples]:
    """Make some batches as they are served, of samples spread over all."""
    some = joined(list(thinned(samples, batch * _BATCHES)))
    size = min(batch, len(some))
    return [select(some, torch.arange(begin, begin + size)) for begin in range(0, len(some) - size + 1, size)]


def _plain(choice: TableChoice | LayerChoice) -> str:
    """Name a choice without its ranges."""
    return choice.model_dump_json(exclude={"ranges"})


def _least_us(*contenders: Sequence[Callable[[], object]]) -> tuple[float, ...]:
    """Mean over calls of the least time of each, contenders in turns; the first round is not counted."""
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
