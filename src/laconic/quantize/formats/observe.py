"""Calibration: what the inputs of every layer look like on real samples.

Shape legend: ``B`` samples, ``K`` inputs of a layer, ``S`` values that are remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.lookups import Lookups
from laconic.quantize.formats.model_shape import linear_layers
from laconic.quantize.formats.trained_model import TrainedModel

__all__ = ["Observed", "observe"]

_SAMPLE_ROWS = 256  # of inputs that are remembered, of every layer
_SHRINKS = 64  # ranges that are tried for the one of least error


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """Inputs of one layer."""

    low_K: Tensor
    high_K: Tensor
    rows_SK: Tensor
    """Some of them, to try ranges on."""

    @property
    def size_K(self) -> Tensor:
        """Largest magnitude of every input."""
        return torch.maximum(self.low_K.abs(), self.high_K.abs())

    def range(self, ranges: str, equal_K: Tensor | None = None) -> Tensor:
        """Smallest and largest input that gets a code of its own, 0 between them."""
        scale_K = torch.ones_like(self.low_K) if equal_K is None else equal_K
        low = (self.low_K * scale_K).amin().clamp(max=0.0)
        high = (self.high_K * scale_K).amax().clamp(min=0.0)
        if ranges == "l2":
            share = _best_share(self.rows_SK * scale_K, low, high)
            low, high = low * share, high * share
        return torch.stack([low, high])


def observe(trained: TrainedModel, batches: Iterable[tuple[Tensor, Lookups]]) -> dict[str, Observed]:
    """Run the model in float32 over batches of dense features and lookups; returns what its layers were given."""
    model = trained.dense_part()
    layers = linear_layers(model)
    seen: dict[str, Observed] = {}

    def hook(name: str) -> Any:
        def note(module: Any, inputs: tuple[Tensor, ...]) -> None:
            if len(inputs[0]):
                seen[name] = _joined(seen.get(name), inputs[0])

        return note

    handles = [layer.register_forward_pre_hook(hook(name)) for name, layer in layers.items()]
    try:
        for dense_BF, lookups in batches:
            trained.logits(model, dense_BF, lookups)
    finally:
        for handle in handles:
            handle.remove()
    if len(seen) < len(layers):
        raise ConfigError("calibration: expected at least one sample, got none; give batches of real ones")
    return seen


def _joined(before: Observed | None, inputs_BK: Tensor) -> Observed:
    low_K, high_K = torch.aminmax(inputs_BK, dim=0)
    rows_SK = inputs_BK[:: max(len(inputs_BK) // 32, 1)][:32].clone()
    if before is None:
        return Observed(low_K, high_K, rows_SK)
    return Observed(
        torch.minimum(before.low_K, low_K),
        torch.maximum(before.high_K, high_K),
        torch.cat([before.rows_SK, rows_SK])[:_SAMPLE_ROWS],
    )


def _best_share(rows_SK: Tensor, low: Tensor, high: Tensor) -> float:
    """Share of the range whose 256 codes have the least squared error on these values."""
    best, least = 1.0, float("inf")
    for k in range(_SHRINKS):
        share = 1.0 - k / (2 * _SHRINKS)  # down to half
        scale = ((high - low) * share / 255).clamp(min=torch.finfo(torch.float32).tiny)
        zero = (-low * share / scale).round()
        codes_SK = ((rows_SK / scale).round() + zero).clamp(0, 255)
        error = float(((codes_SK - zero) * scale - rows_SK).square().sum())
        if error < least:
            best, least = share, error
    return best
