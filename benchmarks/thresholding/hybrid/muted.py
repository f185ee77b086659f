"""Splits that send nothing: what a rank computes in a step, and no more.

Every layer has its width and is computed forward and back; the activations of the other rank are zeros.
Shape legend: ``B`` samples, ``D`` columns.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from laconic.nn import DividedMlp

__all__ = ["mute"]


def mute(mlp: DividedMlp, whole: nn.Sequential, samples: int) -> None:
    """Let the splits of one of two parts send nothing; ``whole`` is what it is a part of."""
    layers = [layer for layer in whole if isinstance(layer, nn.Linear)]
    home = mlp.splits[0].rank == mlp.ranks[0]
    if mlp.enter is not None:
        mlp.enter = nn.Identity() if home else _Muted(layers[0].in_features, samples)  # type: ignore[assignment]
    for k, (layer, own) in enumerate(zip(layers, list(mlp.layers), strict=True)):
        gets = home or k + 1 < len(layers)
        assert isinstance(own, nn.Linear), "parts of layers are layers"
        mlp.splits[k] = _Muted(layer.out_features - own.out_features if gets else 0, samples)


class _Muted(nn.Module):
    """Zeros beside a rank's own activations."""

    def __init__(self, columns: int, samples: int) -> None:
        super().__init__()
        self._zeros_BD = torch.zeros(samples, columns)

    def forward(self, x_BD: Tensor | None = None) -> Tensor:
        others_BD = self._zeros_BD.detach().requires_grad_()  # a rank computes gradients of what it gets
        return others_BD if x_BD is None else torch.cat([x_BD, others_BD], dim=1)
