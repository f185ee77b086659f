"""Fully connected layers whose neurons are divided among ranks, as in DCT-MP: each needs the others' activations.

::

    input -> [split] -> layer 1, each rank its neurons -> ReLU -> split -> layer 2 ... -> split -> home

Every rank sees its own activations as they are and the others' as ``Split`` sends them. The first rank is home: it gives
the input, unless all ranks have it, and gets the result; the others get a tensor without columns, for autograd to
come back through. ``RehearsedDividedMlp`` is all ranks in one process, bit for bit.

Shape legend: ``B`` samples, ``D`` columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from laconic.codecs.threshold import Threshold
from laconic.errors import ConfigError
from laconic.nn.rehearsed_split import RehearsedSplit
from laconic.nn.split import Split
from laconic.nn.split_part import ranks_of

__all__ = ["DividedMlp", "RehearsedDividedMlp", "divide_neurons"]


def divide_neurons(neurons: int, ranks: int) -> list[slice]:
    """Return each rank's neurons: neighbors, as many as others have or one more."""
    ends = [neurons * r // ranks for r in range(ranks + 1)]
    return [slice(ends[r], ends[r + 1]) for r in range(ranks)]


class DividedMlp(nn.Module):
    """The part of an MLP that this rank has."""

    def __init__(
        self,
        mlp: nn.Sequential,
        ranks: Sequence[int],
        *,
        shared_input: bool = False,
        threshold: Threshold | None = None,
        name: str = "mlp",
        group: Any = None,
    ) -> None:
        """``mlp`` is the whole, the same on all ranks: this one copies its neurons and forgets the rest.

        ``shared_input``: every rank has the input, so that it need not be sent.
        """
        super().__init__()
        self.ranks = ranks_of(name, "ranks", ranks)
        kind: dict[str, Any] = {"threshold": threshold, "group": group}
        home, shared = self.ranks[0], () if shared_input else (self.ranks[0],)
        self.enter = Split(home, self.ranks, name=f"{name}.input", **kind) if shared else None
        self.layers, self.splits = nn.ModuleList(), nn.ModuleList()
        layers = _layers_of(name, mlp)
        for k, layer in enumerate(layers):
            target = home if k + 1 == len(layers) else self.ranks
            split = Split(self.ranks, target, name=f"{name}.{k}", **kind)
            self.splits.append(split)
            own = divide_neurons(layer.out_features, len(self.ranks))[self.ranks.index(split.rank)]
            self.layers.append(_part_of(layer, own))

    def forward(self, x_BD: Tensor | None = None) -> Tensor:
        """Take the input where this rank has it; return the result at home, and elsewhere no columns."""
        x_BD = x_BD if self.enter is None else self.enter(x_BD)
        for layer, split in zip(self.layers, self.splits, strict=True):
            x_BD = split(torch.relu(layer(x_BD)))
        assert x_BD is not None, "an MLP has layers"
        return x_BD


class RehearsedDividedMlp(nn.Module):
    """All parts of an MLP in one process; its parameters are those of the whole."""

    def __init__(
        self,
        mlp: nn.Sequential,
        ranks: int,
        *,
        shared_input: bool = False,
        threshold: Threshold | None = None,
        name: str = "mlp",
    ) -> None:
        super().__init__()
        self.ranks = ranks
        several = range(ranks)
        make = RehearsedSplit
        self.enter = None if shared_input else make(0, several, threshold=threshold, name=f"{name}.input")
        layers = _layers_of(name, mlp)
        self.layers = nn.ModuleList(layers)
        self._linear = layers
        self.splits = nn.ModuleList(
            make(several, several if k + 1 < len(layers) else 0, threshold=threshold, name=f"{name}.{k}")
            for k in range(len(layers))
        )

    def forward(self, x_BD: Tensor) -> Tensor:
        """Return what the first rank would get."""
        views = [x_BD] * self.ranks if self.enter is None else self.enter([x_BD])
        for layer, split in zip(self._linear, self.splits, strict=True):
            parts = [
                torch.relu(nn.functional.linear(view_BD, layer.weight[own], layer.bias[own]))
                for view_BD, own in zip(views, divide_neurons(layer.out_features, self.ranks), strict=True)
            ]
            views = split(parts)
        return views[0]


def _layers_of(name: str, mlp: nn.Sequential) -> list[nn.Linear]:
    """Return the linear layers; each must have a bias and a ReLU behind it."""
    modules = list(mlp)
    linear, after = modules[0::2], modules[1::2]
    fits = len(linear) == len(after) > 0 and all(isinstance(layer, nn.ReLU) for layer in after)
    if not fits or not all(isinstance(layer, nn.Linear) and layer.bias is not None for layer in linear):
        raise ConfigError(
            f"{name}: expected an nn.Sequential of nn.Linear with bias and nn.ReLU in turns, got {modules!r}"
        )
    return linear  # type: ignore[return-value]


def _part_of(layer: nn.Linear, own: slice) -> nn.Linear:
    part = nn.Linear(layer.in_features, own.stop - own.start, dtype=layer.weight.dtype)
    with torch.no_grad():
        part.weight.copy_(layer.weight[own])
        assert part.bias is not None
        part.bias.copy_(layer.bias[own])
    return part
