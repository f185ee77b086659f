"""The probe: a model in plain torch with one part in low precision, or all as a recipe says.

The engine computes the same from the same bytes, faster and with sums of int32. Its logits decide
in the end.

Rows are quantized one by one, so only those rows of a table are quantized that samples look up.
What a candidate does not change is computed once: for a table, these are the embeddings of all
other tables and the bottom layers.

An int8 layer rounds its inputs to ``q`` of 256 steps between ``low <= 0`` and ``high >= 0``, which
are those of each sample or, ``int8_static``, constants::

    step = (high - low) / 255
    zero = round(-low / step)
    q = clamp(round(x / step) + zero, 0, 255)

Shape legend: ``B`` samples, ``N`` outputs and ``K`` inputs of a layer, ``T`` tables, ``D`` numbers
of a row, ``L`` ids, ``U`` distinct ids.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from laconic.data import Samples
from laconic.lookups import Lookups
from laconic.quantize.formats.artifact import Artifact
from laconic.quantize.formats.layers import Observed, quantize_layer, restored_weight
from laconic.quantize.formats.recipe import LayerPrecision, Recipe, TablePrecision
from laconic.quantize.formats.rows import RowFormat, dequantize_rows, quantize_rows
from laconic.quantize.formats.table_rows import LookedUp, pieces
from laconic.quantize.formats.trained_model import TrainedModel, linear_layers
from laconic.quantize.search.candidates import Candidate
from laconic.quantize.search.workbench import check_finite, labels

__all__ = ["EmulatedLinear", "EmulatedModel", "Probe"]


class EmulatedLinear(nn.Module):
    """A fully connected layer, computed from its stored tensors."""

    def __init__(self, precision: LayerPrecision, layer: dict[str, Tensor]) -> None:
        super().__init__()
        self._integer = precision.kind.startswith("int8")
        stored = {key: tensor for key, tensor in layer.items() if not (self._integer and key == "equal")}
        self._weight_NK, self._bias_N = restored_weight(stored), layer.get("bias")
        self._equal_K, self._range = layer.get("equal"), layer.get("range")

    def forward(self, x_BK: Tensor) -> Tensor:
        """Round the inputs as the layer would, then multiply."""
        if self._integer:
            x_BK = self._rounded(x_BK if self._equal_K is None else x_BK * self._equal_K)
        return nn.functional.linear(x_BK, self._weight_NK, self._bias_N)

    def _rounded(self, x_BK: Tensor) -> Tensor:
        if not x_BK.numel():
            return x_BK
        if self._range is None:
            low, high = x_BK.amin(dim=1, keepdim=True), x_BK.amax(dim=1, keepdim=True)
        else:
            low, high = self._range[0], self._range[1]
        low, high = low.clamp(max=0.0), high.clamp(min=0.0)
        step = (high - low) / 255
        step = torch.where(step > 0, step, 1.0)
        zero = (-low / step).round()
        return ((x_BK / step).round().add_(zero).clamp_(0, 255) - zero) * step


class EmulatedModel:
    """A whole artifact, computed in torch."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.dense = artifact.shape.build().requires_grad_(False)
        for name in linear_layers(self.dense):
            layer = EmulatedLinear(artifact.recipe.layers[name], artifact.layers[name])
            self.dense.set_submodule(name, layer)

    def embed(self, lookups: Lookups) -> Tensor:
        """Look up and pool: B x T x D."""
        shape, recipe = self.artifact.shape, self.artifact.recipe
        bags = []
        for t, name in enumerate(self.artifact.features.table_names):
            ids_L, offsets = lookups.table(t)
            ids_U, places_L = torch.unique(ids_L, return_inverse=True)
            rows_UD = dequantize_rows(
                self.artifact.tables[name][ids_U], recipe.tables[name].format, shape.dim
            )
            bags.append(_pool(rows_UD, places_L, offsets, shape.pooling))
        return torch.stack(bags, dim=1)

    def logits(self, dense_BF: Tensor, lookups: Lookups) -> Tensor:
        """Score samples."""
        with torch.inference_mode():
            return self.dense(dense_BF, self.embed(lookups))  # type: ignore[no-any-return]


def _pool(rows_UD: Tensor, places_L: Tensor, offsets: Tensor, pooling: str) -> Tensor:
    """Pool bags of rows: B x D."""
    if len(places_L) == len(offsets) - 1 and bool((offsets[1:] - offsets[:-1] == 1).all()):
        return rows_UD[places_L]
    if not len(rows_UD):
        return torch.zeros(len(offsets) - 1, rows_UD.shape[1])
    return nn.functional.embedding_bag(places_L, rows_UD, offsets, mode=pooling, include_last_offset=True)


def _largest(rows_RD: Tensor) -> Tensor:
    """Return the row with the largest magnitude, as a matrix; one with NaN is larger than all."""
    low_R, high_R = torch.aminmax(rows_RD, dim=1)
    largest = int(torch.maximum(-low_R, high_R).argmax())
    return rows_RD[largest : largest + 1].clone()


class _ProbedTable:
    """The rows of one table that some samples look up."""

    def __init__(self, trained: TrainedModel, t: int, batches: tuple[Samples, ...]) -> None:
        table = trained.tables[trained.features.table_names[t]]
        self._found = LookedUp([samples.lookups.table(t) for samples in batches])
        self._exact_UD = table[self._found.ids_U]
        self._pooling = trained.shape.pooling
        self._cached: tuple[TablePrecision, Tensor] | None = None

    def _rows(self, precision: TablePrecision) -> Tensor:
        """Return the rows after quantization; the latest ones are kept."""
        if precision.format is RowFormat.FP32:
            return self._exact_UD
        if self._cached is None or self._cached[0] != precision:
            stored = quantize_rows(self._exact_UD, precision.format, precision.ranges)
            self._cached = precision, dequantize_rows(stored, precision.format, self._exact_UD.shape[1])
        return self._cached[1]

    def pooled(self, precision: TablePrecision, batch: int) -> Tensor:
        """Pool the bags of a batch: B x D."""
        found = self._found
        return _pool(self._rows(precision), found.places[batch], found.offsets[batch], self._pooling)


class Probe:
    """Scores samples in any mixture of precisions; fastest with a single part below fp32."""

    def __init__(
        self, trained: TrainedModel, batches: tuple[Samples, ...], observed: Mapping[str, Observed]
    ) -> None:
        self.trained, self.batches, self._observed = trained, batches, observed
        self.names = trained.features.table_names
        self.label_B = labels(batches)
        self._tables = [_ProbedTable(trained, t, batches) for t in range(len(self.names))]
        self._model = trained.dense_model()
        self._layers = linear_layers(trained.dense_model())
        exact = Recipe.uniform(self.names, self._layers)
        with torch.inference_mode():
            self._embeddings = [self._embed(exact, batch) for batch in range(len(batches))]
            self._dense = [self._model.dense_part(samples.dense_BF) for samples in batches]
        self.exact_B = self.logits(exact)
        check_finite(self.exact_B)
        self._largest: dict[str, Tensor] = {}

    def logits(self, recipe: Recipe) -> Tensor:
        """Return the logits of all samples, with every part as the recipe says."""
        recipe.check(self.names, self._layers)
        model = self.trained.dense_model()
        for name, precision in recipe.layers.items():
            if precision.kind != "fp32":
                model.set_submodule(name, self._layer(name, precision))
        with torch.inference_mode():
            scores = [
                model(samples.dense_BF, self._embed(recipe, batch))
                for batch, samples in enumerate(self.batches)
            ]
        return torch.cat(scores)

    def _layer(self, name: str, precision: LayerPrecision) -> nn.Module:
        stored = quantize_layer(name, self._layers[name], precision, self._observed.get(name))
        return EmulatedLinear(precision, stored)

    def _embed(self, recipe: Recipe, batch: int) -> Tensor:
        """Pool the embeddings of a batch: B x T x D."""
        bags = [
            table.pooled(recipe.tables[name], batch)
            for name, table in zip(self.names, self._tables, strict=True)
        ]
        return torch.stack(bags, dim=1)

    def largest_row(self, name: str) -> Tensor:
        """Return the row with the largest magnitude, which a format must be able to hold."""
        if name not in self._largest:
            each = [_largest(rows_RD) for _, rows_RD in pieces(self.trained.tables[name])]
            self._largest[name] = _largest(torch.cat(each))
        return self._largest[name]

    def logits_with(self, candidate: Candidate) -> Tensor:
        """Return the logits of all samples, with one part as the candidate says, others in fp32."""
        with torch.inference_mode():
            if isinstance(candidate.precision, TablePrecision):
                return self._with_table(self.names.index(candidate.part.name), candidate.precision)
            return self._with_layer(candidate.part.name, candidate.precision)

    def _with_table(self, t: int, precision: TablePrecision) -> Tensor:
        scores = []
        for batch, (bottom, embeddings_BTD) in enumerate(zip(self._dense, self._embeddings, strict=True)):
            exact_BD = embeddings_BTD[:, t].clone()
            embeddings_BTD[:, t] = self._tables[t].pooled(precision, batch)
            scores.append(self._model.head(bottom, embeddings_BTD))
            embeddings_BTD[:, t] = exact_BD
        return torch.cat(scores)

    def _with_layer(self, name: str, precision: LayerPrecision) -> Tensor:
        exact = self._model.get_submodule(name)
        self._model.set_submodule(name, self._layer(name, precision))
        try:
            if not name.startswith("bottom."):
                heads = zip(self._dense, self._embeddings, strict=True)
                return torch.cat(
                    [self._model.head(bottom, embeddings_BTD) for bottom, embeddings_BTD in heads]
                )
            both = zip(self.batches, self._embeddings, strict=True)
            return torch.cat(
                [self._model(samples.dense_BF, embeddings_BTD) for samples, embeddings_BTD in both]
            )
        finally:
            self._model.set_submodule(name, exact)
