"""Fully connected layers, initialized as in the reference DLRM.

Weights are normal with variance ``2 / (inputs + outputs)``, biases with variance ``1 / outputs``;
draws come from torch's global generator, so ranks that seed it alike start alike.
"""

from __future__ import annotations

import math

from torch import nn

from laconic.errors import ConfigError

__all__ = ["linear", "mlp"]


def linear(inputs: int, outputs: int) -> nn.Linear:
    """One layer, without an activation."""
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, 0.0, math.sqrt(2 / (inputs + outputs)))
    nn.init.normal_(layer.bias, 0.0, math.sqrt(1 / outputs))
    return layer


def mlp(where: str, inputs: int, sizes: tuple[int, ...]) -> nn.Sequential:
    """Layers of these sizes, a ReLU after each; no sizes make the identity. ``where`` begins an error."""
    if any(size < 1 for size in sizes):
        raise ConfigError(f"{where}: expected layer sizes >= 1, got {tuple(sizes)!r}")
    layers: list[nn.Module] = []
    for size in sizes:
        layers += [linear(inputs, size), nn.ReLU()]
        inputs = size
    return nn.Sequential(*layers)
