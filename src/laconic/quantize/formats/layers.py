"""Fully connected layers in few bits, and calibration: what their inputs look like on real samples.

======= =============== ========================================================================
tensor  type, shape     meaning
======= =============== ========================================================================
weight  fp32, N x K     fp32
..      bf16, N x K     bf16
..      int8, N x K     int8: ``weight * scale`` multiplies the inputs, after ``equal``
scale   fp32, N         int8: the scale of every output's weights
bias    fp32, N         absent where the layer has none
equal   fp32, K         int8, equalized: inputs are multiplied with it before they are rounded
range   fp32, 2         int8_static: smallest and largest input (after ``equal``) that has a code
======= =============== ========================================================================

Shape legend: ``B`` samples, ``N`` outputs, ``K`` inputs of a layer, ``S`` samples whose inputs are
kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from laconic.errors import ConfigError
from laconic.lookups import Lookups
from laconic.quantize.formats.recipe import LayerPrecision
from laconic.quantize.formats.trained_model import TrainedModel, linear_layers

__all__ = ["Observed", "captured", "observe", "quantize_layer", "restored_weight", "tensor_shapes"]

_SAMPLE_ROWS = 256  # samples whose inputs are kept, for every layer
_SHRINKS = 64  # ranges that are tried for the one of least error

_TOP = 127  # codes of weights are symmetric


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """What was observed of one layer's inputs."""

    low_K: Tensor
    high_K: Tensor
    rows_SK: Tensor
    """Inputs of some samples, to try ranges on."""

    @property
    def size_K(self) -> Tensor:
        """Largest magnitude of every input."""
        return torch.maximum(self.low_K.abs(), self.high_K.abs())

    def range(self, ranges: str, equal_K: Tensor | None = None) -> Tensor:
        """Return the smallest and the largest input that has a code; 0 is between them."""
        scale_K = torch.ones_like(self.low_K) if equal_K is None else equal_K
        low = (self.low_K * scale_K).amin().clamp(max=0.0)
        high = (self.high_K * scale_K).amax().clamp(min=0.0)
        if ranges == "l2":
            share = _best_share(self.rows_SK * scale_K, low, high)
            low, high = low * share, high * share
        return torch.stack([low, high])


def observe(trained: TrainedModel, batches: Iterable[tuple[Tensor, Lookups]]) -> dict[str, Observed]:
    """Run the model in float32 over batches of dense features and lookups, and observe its layers.

    ``ConfigError`` where there is no sample.
    """
    model = trained.dense_model()
    seen: dict[str, Observed] = {}
    with captured(model, linear_layers(model)) as latest:
        for _ in trained.logits_of_batches(model, batches):
            for name, (inputs_BK, _) in latest.items():
                if len(inputs_BK):
                    seen[name] = _joined(seen.get(name), inputs_BK)
    if not seen:
        raise ConfigError("calibration: expected at least one sample, got none; give batches of real ones")
    return seen


@contextmanager
def captured(model: nn.Module, names: Iterable[str]) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
    """Keep inputs and outputs of these layers as of the latest batch, by name."""
    latest: dict[str, tuple[Tensor, Tensor]] = {}

    def hook(name: str) -> Any:
        def keep(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            latest[name] = (inputs[0], output)

        return keep

    handles = [model.get_submodule(name).register_forward_hook(hook(name)) for name in names]
    try:
        yield latest
    finally:
        for handle in handles:
            handle.remove()


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
    """Return the share of the range whose 256 codes have the least squared error."""
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
    name: str, layer: nn.Linear, precision: LayerPrecision, observed: Observed | None = None
) -> dict[str, Tensor]:
    """Return the tensors of a layer as it is stored; see the table on top.

    ``ConfigError`` where weights are not finite, or inputs were not observed that must be.
    """
    weight_NK, bias_N = layer.weight.detach().to(torch.float32), layer.bias
    if not torch.isfinite(weight_NK).all() or (bias_N is not None and not torch.isfinite(bias_N).all()):
        raise ConfigError(
            f"layer {name!r}: expected finite weights, got NaN or infinity; the model did not train"
        )
    if precision.calibrated and observed is None:
        raise ConfigError(
            f"layer {name!r}: {precision.kind} needs its inputs observed; calibrate, or choose another kind"
        )
    others = {} if bias_N is None else {"bias": bias_N.detach().to(torch.float32).clone()}
    if precision.kind == "fp32":
        return {"weight": weight_NK.clone(), **others}
    if precision.kind == "bf16":
        return {"weight": weight_NK.to(torch.bfloat16), **others}
    equal_K = None
    if precision.equalized:
        assert observed is not None
        equal_K = _equalization(weight_NK, observed.size_K)
        others["equal"] = equal_K
        weight_NK = weight_NK / equal_K
    if precision.kind == "int8_static":
        assert observed is not None
        others["range"] = observed.range(precision.ranges, equal_K)
    size_N = weight_NK.abs().amax(dim=1)
    scale_N = torch.where(size_N > 0, size_N / _TOP, 1.0).contiguous()
    codes_NK = (weight_NK / scale_N[:, None]).round_().clamp_(-_TOP, _TOP).to(torch.int8)
    return {"weight": codes_NK, "scale": scale_N, **others}


def restored_weight(layer: dict[str, Tensor]) -> Tensor:
    """Return float32 weights of a stored layer, for inputs that are not multiplied by ``equal``."""
    weight_NK = layer["weight"].to(torch.float32)
    if "scale" in layer:
        weight_NK = weight_NK * layer["scale"][:, None]
    return weight_NK * layer["equal"] if "equal" in layer else weight_NK


def tensor_shapes(
    precision: LayerPrecision, outputs: int, inputs: int, *, bias: bool
) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Return types and shapes of the tensors that a layer in this precision has."""
    integer = precision.kind.startswith("int8")
    kind = torch.int8 if integer else torch.bfloat16 if precision.kind == "bf16" else torch.float32
    shapes: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {"weight": (kind, (outputs, inputs))}
    if bias:
        shapes["bias"] = (torch.float32, (outputs,))
    if integer:
        shapes["scale"] = (torch.float32, (outputs,))
    if integer and precision.equalized:
        shapes["equal"] = (torch.float32, (inputs,))
    if precision.kind == "int8_static":
        shapes["range"] = (torch.float32, (2,))
    return shapes


def _equalization(weight_NK: Tensor, input_size_K: Tensor) -> Tensor:
    weight_size_K = weight_NK.abs().amax(dim=0)
    equal_K = (weight_size_K / input_size_K).sqrt()
    usable_K = (weight_size_K > 0) & (input_size_K > 0) & torch.isfinite(equal_K) & (equal_K > 0)
    return torch.where(usable_K, equal_K, 1.0)
