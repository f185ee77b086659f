"""How long a batch takes in the engine, part by part, beside fp32.

Formats take turns with fp32 and the least time of several rounds counts: a noisy machine makes calls longer,
never shorter. Contents do not matter to the time of a lookup, so a table is as many copies of one row, in memory of
their own. Shape legend: ``B`` samples, ``F`` dense features, ``V`` vectors, ``R`` rows, ``W`` bytes of one, ``D`` numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic import kernels
from laconic.data import Samples
from laconic.quant import Artefact
from laconic.quant.layers import quantize_layer
from laconic.quant.model_shape import linear_layers
from laconic.quant.observe import Observed
from laconic.quant.recipe import LayerChoice, TableChoice
from laconic.quant.rows import Ranges, RowFormat, quantize_rows
from laconic.quant.trained_model import TrainedModel
from laconic.quantize.candidates import Candidate
from laconic.quantize.emulate import table_bags
from laconic.quantize.held_out import joined, select, thinned
from laconic.serve import Engine
from laconic.serve.dense_network import DenseNetwork

__all__ = ["Stopwatch", "engine_us"]

_BATCHES = 16
_ROUNDS = 9


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
        self._layers = linear_layers(trained.dense_part())
        self._exact = {name: self._parts(name, LayerChoice()) for name in self._layers}
        self._known: dict[tuple[str, str, Any], float] = {}

    def __call__(self, candidate: Candidate) -> float:
        """Time a candidate; ranges have no influence on it."""
        choice, part = candidate.choice, candidate.part
        plain: TableChoice | LayerChoice
        if isinstance(choice, TableChoice):
            plain = choice.model_copy(update={"ranges": Ranges.MINMAX})
            measure: Callable[[str, Any], float] = self._table
        else:
            plain = choice.model_copy(update={"ranges": "minmax"})
            measure = self._layer
        key = (part.kind, part.name, plain.model_dump_json())
        if key not in self._known:
            exact = plain in (TableChoice(), LayerChoice())
            self._known[key] = 0.0 if exact else measure(part.name, plain)
        return self._known[key]

    def _table(self, name: str, choice: TableChoice) -> float:
        t = self._trained.features.table_names.index(name)
        bags = [table_bags(samples.lookups, t) for samples in self._batches]
        return _beside(self._look_up(name, TableChoice(), bags), self._look_up(name, choice, bags)) / len(
            bags
        )

    def _look_up(
        self, name: str, choice: TableChoice, bags: list[tuple[Tensor, Tensor]]
    ) -> Callable[[], None]:
        rows_RD, dim = self._trained.tables[name], self._trained.shape.dim
        stored_RW = rows_RD.contiguous().view(torch.uint8)
        if choice.format is not RowFormat.FP32:
            stored_RW = quantize_rows(torch.zeros(1, dim), choice.format).repeat(len(rows_RD), 1)
        chosen = kernels.active()
        tables = chosen.row_tables(dim)
        tables.add(stored_RW.numpy(), choice.format.code)
        mean = self._trained.shape.pooling == "mean"
        arrays = [(ids_L.contiguous().numpy(), offsets.contiguous().numpy()) for ids_L, offsets in bags]
        out_BVD = [np.empty((len(offsets) - 1, 1, dim), np.float32) for _, offsets in arrays]

        def run() -> None:
            for (ids_L, offsets), out in zip(arrays, out_BVD, strict=True):
                chosen.embedding_bags(tables, ids_L, offsets, None, mean, None, out, 0, 1)

        return run

    def _layer(self, name: str, choice: LayerChoice) -> float:
        exact = self._network(self._exact)
        changed = self._network({**self._exact, name: self._parts(name, choice)})
        return _beside(exact, changed) / len(self._batches)

    def _network(self, layers: Mapping[str, dict[str, Tensor]]) -> Callable[[], None]:
        shape = self._trained.shape
        network = DenseNetwork(shape, layers)
        inputs: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
        for samples in self._batches:
            vectors_BVD = torch.zeros(len(samples), network.own_vectors + shape.tables, shape.dim)
            vectors_BVD[:, network.own_vectors :] = self._trained.embed(samples.lookups)
            inputs.append((samples.dense_BF.contiguous().numpy(), vectors_BVD.numpy()))

        def run() -> None:
            for dense_BF, vectors_BVD in inputs:
                network.logits(dense_BF, vectors_BVD)

        return run

    def _parts(self, name: str, choice: LayerChoice) -> dict[str, Tensor]:
        layer = self._layers[name]
        return quantize_layer(f"layer {name!r}", layer.weight, layer.bias, choice, self._observed.get(name))


def engine_us(artefact: Artefact, samples: tuple[Samples, ...], batch: int) -> float:
    """Microseconds of a batch in the engine, on one thread."""
    engine = Engine(artefact)
    batches = [(part.dense_BF.contiguous().numpy(), part.lookups) for part in small_batches(samples, batch)]

    def run() -> None:
        for dense_BF, lookups in batches:
            engine.logits(dense_BF, lookups)

    return _least_us(run, lambda: None)[0] / len(batches)


def small_batches(samples: tuple[Samples, ...], batch: int) -> list[Samples]:
    """Up to so many batches as they are served, from samples spread over all."""
    some = joined(list(thinned(samples, batch * _BATCHES)))
    size = min(batch, len(some))
    return [select(some, torch.arange(begin, begin + size)) for begin in range(0, len(some) - size + 1, size)]


def _beside(exact: Callable[[], None], changed: Callable[[], None]) -> float:
    """Microseconds that the second takes more."""
    exact_us, changed_us = _least_us(exact, changed)
    return changed_us - exact_us


def _least_us(*runs: Callable[[], None]) -> tuple[float, ...]:
    """Least time of each, in turns; the first round is not counted."""
    least = [float("inf")] * len(runs)
    for round_ in range(_ROUNDS + 1):
        for k, run in enumerate(runs):
            begun = perf_counter()
            run()
            if round_:
                least[k] = min(least[k], perf_counter() - begun)
    return tuple(1e6 * seconds for seconds in least)
