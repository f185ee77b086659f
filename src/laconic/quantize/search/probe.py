"""Score samples with one part of the model in low precision, or with all of them as a recipe says.

Rows are quantized one by one, so of a table only those that the samples look up are. What a candidate
does not change is computed once: for a table, embeddings of all others and the dense part stay.

Shape legend: ``B`` samples, ``T`` tables, ``D`` numbers of a row, ``L`` ids, ``U`` distinct ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from laconic.data import Samples
from laconic.quantize.formats.layers import quantize_layer
from laconic.quantize.formats.model_shape import linear_layers
from laconic.quantize.formats.observe import Observed
from laconic.quantize.formats.recipe import LayerChoice, Recipe, TableChoice
from laconic.quantize.formats.rows import RowFormat, dequantize_rows, quantize_rows
from laconic.quantize.formats.trained_model import TrainedModel
from laconic.quantize.search.candidates import Candidate
from laconic.quantize.search.emulate import EmulatedLinear, pool, table_bags
from laconic.quantize.search.half import check_finite
from laconic.quantize.search.held_out import labels

__all__ = ["Probe", "Scorer"]


class _Rows:
    """Rows of one table that some samples look up."""

    def __init__(self, trained: TrainedModel, t: int, batches: tuple[Samples, ...]) -> None:
        bags = [table_bags(samples.lookups, t) for samples in batches]
        ids_U, places_L = torch.unique(torch.cat([ids_L for ids_L, _ in bags]), return_inverse=True)
        self.ids_U: Tensor = ids_U
        self._places = places_L.split([len(ids_L) for ids_L, _ in bags])
        self._offsets = [offsets for _, offsets in bags]
        self._pooling = trained.shape.pooling
        self.exact_UD = trained.tables[trained.features.table_names[t]][ids_U]
        self._cached: tuple[TableChoice, Tensor] | None = None

    def rows(self, choice: TableChoice) -> Tensor:
        """Return what the rows become; the last answer is remembered."""
        if choice.format is RowFormat.FP32:
            return self.exact_UD
        if self._cached is None or self._cached[0] != choice:
            stored = quantize_rows(self.exact_UD, choice.format, choice.ranges)
            self._cached = choice, dequantize_rows(stored, choice.format, self.exact_UD.shape[1])
        return self._cached[1]

    def pooled(self, choice: TableChoice, batch: int) -> Tensor:
        """Bags of a batch, B x D."""
        return pool(self.rows(choice), self._places[batch], self._offsets[batch], self._pooling)


class Scorer:
    """Scores a set of samples with any recipe."""

    def __init__(
        self, trained: TrainedModel, batches: tuple[Samples, ...], observed: Mapping[str, Observed]
    ) -> None:
        self.trained, self.batches, self._observed = trained, batches, observed
        self.names = trained.features.table_names
        self.label_B = labels(batches)
        self._tables = [_Rows(trained, t, batches) for t in range(len(self.names))]
        self._layers = linear_layers(trained.dense_part())
        self.exact_B = self.logits(Recipe.uniform(self.names, self._layers))
        check_finite(self.exact_B)

    def logits(self, recipe: Recipe, done: Callable[[int], None] = lambda samples: None) -> Tensor:
        """Logits of all samples; ``done`` is called with the samples of every batch."""
        recipe.check(self.names, self._layers)
        model = self.module(recipe)
        scores = []
        with torch.inference_mode():
            for batch, samples in enumerate(self.batches):
                scores.append(model(samples.dense_BF, self.embed(recipe, batch)))
                done(len(samples))
        return torch.cat(scores)

    def module(self, recipe: Recipe) -> nn.Module:
        """Return the dense part with its layers as the recipe says."""
        model = self.trained.dense_part()
        for name, choice in recipe.layers.items():
            if choice.kind != "fp32":
                model.set_submodule(name, self.layer(name, choice))
        return model

    def layer(self, name: str, choice: LayerChoice) -> nn.Module:
        """One layer in low precision."""
        layer = self._layers[name]
        parts = quantize_layer(f"layer {name!r}", layer.weight, layer.bias, choice, self._observed.get(name))
        return EmulatedLinear(choice, parts)

    def embed(self, recipe: Recipe, batch: int) -> Tensor:
        """Pooled embeddings of a batch, B x T x D."""
        bags = [
            table.pooled(recipe.tables[name], batch)
            for name, table in zip(self.names, self._tables, strict=True)
        ]
        return torch.stack(bags, dim=1)

    def pooled(self, t: int, choice: TableChoice, batch: int) -> Tensor:
        """Pooled embeddings of one table, B x D."""
        return self._tables[t].pooled(choice, batch)


class Probe(Scorer):
    """Scores samples with one part in low precision and all others in fp32; keeps their activations."""

    def __init__(
        self, trained: TrainedModel, batches: tuple[Samples, ...], observed: Mapping[str, Observed]
    ) -> None:
        super().__init__(trained, batches, observed)
        self._model = trained.dense_part()
        exact = Recipe.uniform(self.names, self._layers)
        with torch.inference_mode():
            self._embeddings = [self.embed(exact, batch) for batch in range(len(batches))]
            self._dense = [self._model.dense_part(samples.dense_BF) for samples in batches]
        self._largest: dict[str, Tensor] = {}

    def largest_row(self, name: str) -> Tensor:
        """Row of a table with the value of largest magnitude, looked up or not: what a format must be able to hold."""
        if name not in self._largest:
            rows_RD = self.trained.tables[name]
            low_R, high_R = torch.aminmax(rows_RD, dim=1)
            largest = int(torch.maximum(-low_R, high_R).argmax())
            self._largest[name] = rows_RD[largest : largest + 1]
        return self._largest[name]

    def logits_with(self, candidate: Candidate) -> Tensor:
        """Logits of all samples."""
        with torch.inference_mode():
            if isinstance(candidate.choice, TableChoice):
                return self._with_table(self.names.index(candidate.part.name), candidate.choice)
            return self._with_layer(candidate.part.name, candidate.choice)

    def _with_table(self, t: int, choice: TableChoice) -> Tensor:
        scores = []
        for batch, (dense_part, embeddings_BTD) in enumerate(zip(self._dense, self._embeddings, strict=True)):
            exact_BD = embeddings_BTD[:, t].clone()
            embeddings_BTD[:, t] = self.pooled(t, choice, batch)
            scores.append(self._model.head(dense_part, embeddings_BTD))
            embeddings_BTD[:, t] = exact_BD
        return torch.cat(scores)

    def _with_layer(self, name: str, choice: LayerChoice) -> Tensor:
        exact = self._model.get_submodule(name)
        self._model.set_submodule(name, self.layer(name, choice))
        try:
            if not name.startswith("bottom."):
                heads = zip(self._dense, self._embeddings, strict=True)
                return torch.cat([self._model.head(part, embeddings_BTD) for part, embeddings_BTD in heads])
            both = zip(self.batches, self._embeddings, strict=True)
            return torch.cat(
                [self._model(samples.dense_BF, embeddings_BTD) for samples, embeddings_BTD in both]
            )
        finally:
            self._model.set_submodule(name, exact)
