"""Fully connected layers in few bits.

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

Shape legend: ``N`` outputs, ``K`` inputs of a layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.quantize.formats.observe import Observed
from laconic.quantize.formats.recipe import LayerChoice

__all__ = ["part_shapes", "quantize_layer", "restored_weight"]

_TOP = 127  # codes of weights are symmetric


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
