"""A quantized model in plain torch, one part at a time: what the search swaps, and the debugger looks into.

The engine computes the same from the same bytes, faster and with sums of int32; its logits decide in the end.

An int8 layer rounds its inputs to ``q`` of 256 steps between ``low <= 0`` and ``high >= 0``, which are those of each
sample or, ``int8_static``, constants::

    step = (high - low) / 255      zero = round(-low / step)      q = clamp(round(x / step) + zero, 0, 255)

Shape legend: ``B`` samples, ``N`` outputs and ``K`` inputs of a layer, ``T`` tables, ``D`` numbers of a row, ``L`` ids,
``U`` distinct ids.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from laconic.lookups import Lookups
from laconic.quantize.formats.artifact import Artifact
from laconic.quantize.formats.layers import restored_weight
from laconic.quantize.formats.model_shape import linear_layers
from laconic.quantize.formats.recipe import LayerChoice
from laconic.quantize.formats.rows import dequantize_rows

__all__ = ["EmulatedLinear", "EmulatedModel", "pool", "table_bags"]


class EmulatedLinear(nn.Module):
    """A fully connected layer from its stored parts."""

    def __init__(self, choice: LayerChoice, parts: dict[str, Tensor]) -> None:
        super().__init__()
        self._integer = choice.kind.startswith("int8")
        stored = {name: part for name, part in parts.items() if not (self._integer and name == "equal")}
        self._weight_NK, self._bias_N = restored_weight(stored), parts.get("bias")
        self._equal_K, self._range = parts.get("equal"), parts.get("range")

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
    """A whole artifact."""

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
            ids_L, offsets = table_bags(lookups, t)
            ids_U, places_L = torch.unique(ids_L, return_inverse=True)
            rows_UD = dequantize_rows(
                self.artifact.tables[name][ids_U], recipe.tables[name].format, shape.dim
            )
            bags.append(pool(rows_UD, places_L, offsets, shape.pooling))
        return torch.stack(bags, dim=1)

    def logits(self, dense_BF: Tensor, lookups: Lookups) -> Tensor:
        """Score samples."""
        with torch.inference_mode():
            return self.dense(dense_BF, self.embed(lookups))  # type: ignore[no-any-return]


def table_bags(lookups: Lookups, t: int) -> tuple[Tensor, Tensor]:
    """Ids of a table, and where the bag of each sample begins in them."""
    offsets = lookups.offsets[t * lookups.samples : (t + 1) * lookups.samples + 1]
    return lookups.ids_L[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0]


def pool(rows_UD: Tensor, places_L: Tensor, offsets: Tensor, pooling: str) -> Tensor:
    """Bags of rows, B x D."""
    if len(places_L) == len(offsets) - 1 and bool((offsets[1:] - offsets[:-1] == 1).all()):
        return rows_UD[places_L]
    if not len(rows_UD):
        return torch.zeros(len(offsets) - 1, rows_UD.shape[1])
    return nn.functional.embedding_bag(places_L, rows_UD, offsets, mode=pooling, include_last_offset=True)
