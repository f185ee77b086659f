"""Fully connected layers in few bits, and calibration: what their inputs look like on real samples.

======= =============== ========================================================================
part    type, shape     meaning
======= =============== ========================================================================
weight  fp32, N x K     fp32
..      bf16, N x K     bf16
..      int8, N x K     int8: ``weight * scale`` is what inputs, after ``equal``, are multiplied with
scale   fp32, N         int8: of every output's weights
bias    fp32, N         absent where the layer has none
equal   fp32, K         int8, equalized: inputs are multiplied with it before they are rounded
range   fp32, 2         int8_static: smallest and largest input (after ``equal``) that has a code
======= =============== ========================================================================

Shape legend: ``B`` samples, ``N`` outputs, ``K`` inputs of a layer, ``S`` inputs that are
remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.lookups import Lookups
from laconic.quantize.formats.recipe import LayerChoice
from laconic.quantize.formats.trained_model import TrainedModel, linear_layers

__all__ = ["Observed", "observe", "part_shapes", "quantize_layer", "restored_weight"]

_SAMPLE_ROWS = 256  # of inputs that are remembered, of every layer
_SHRINKS = 64  # ranges that are tried for the one of least error

_TOP = 127  # codes of weights are symmetric


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


def quantize_layer(
    where: str,
    weight_NK: Tensor,
    bias_N: Tensor | None,
    choice: LayerChoice,
    observed: Observed | None = None,
) -> dict[str, Tensor]:
    """Parts of a layer as it is stored; ``where`` begins an error. ``observed`` are the layer's inputs."""
    weight_NK = weight_NK.detach().to(torch.float32)
    if not torch.isfinite(weight_NK).all() or (bias_N is not None and not torch.isfinite(bias_N).all()):
        raise ConfigError(f"{where}: expected finite weights, got NaN or infinity; the model did not train")
    if choice.calibrated and observed is None:
        raise ConfigError(
            f"{where}: {choice.kind} needs its inputs observed; calibrate, or choose another kind"
        )
    parts = {} if bias_N is None else {"bias": bias_N.detach().to(torch.float32).clone()}
    if choice.kind == "fp32":
        return {"weight": weight_NK.clone(), **parts}
    if choice.kind == "bf16":
        return {"weight": weight_NK.to(torch.bfloat16), **parts}
    equal_K = None
    if choice.equalized:
        assert observed is not None
        equal_K = _equalization(weight_NK, observed.size_K)
        parts["equal"] = equal_K
        weight_NK = weight_NK / equal_K
    if choice.kind == "int8_static":
        assert observed is not None
        parts["range"] = observed.range(choice.ranges, equal_K)
    size_N = weight_NK.abs().amax(dim=1)
    scale_N = torch.where(size_N > 0, size_N / _TOP, 1.0).contiguous()
    codes_NK = (weight_NK / scale_N[:, None]).round_().clamp_(-_TOP, _TOP).to(torch.int8)
    return {"weight": codes_NK, "scale": scale_N, **parts}


def restored_weight(parts: dict[str, Tensor]) -> Tensor:
    """Float32 weights for inputs as they come."""
    weight_NK = parts["weight"].to(torch.float32)
    if "scale" in parts:
        weight_NK = weight_NK * parts["scale"][:, None]
    return weight_NK * parts["equal"] if "equal" in parts else weight_NK


def part_shapes(
    choice: LayerChoice, outputs: int, inputs: int, *, bias: bool
) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Types and shapes of the parts that a layer of this choice has."""
    integer = choice.kind.startswith("int8")
    kind = torch.int8 if integer else torch.bfloat16 if choice.kind == "bf16" else torch.float32
    shapes: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {"weight": (kind, (outputs, inputs))}
    if bias:
        shapes["bias"] = (torch.float32, (outputs,))
    if integer:
        shapes["scale"] = (torch.float32, (outputs,))
    if integer and choice.equalized:
        shapes["equal"] = (torch.float32, (inputs,))
    if choice.kind == "int8_static":
        shapes["range"] = (torch.float32, (2,))
    return shapes


def _equalization(weight_NK: Tensor, input_size_K: Tensor) -> Tensor:
    weight_size_K = weight_NK.abs().amax(dim=0)
    equal_K = (weight_size_K / input_size_K).sqrt()
    usable_K = (weight_size_K > 0) & (input_size_K > 0) & torch.isfinite(equal_K) & (equal_K > 0)
    return torch.where(usable_K, equal_K, 1.0)
