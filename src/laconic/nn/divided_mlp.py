"""Fully connected layers whose neurons are divided among ranks, as in DCT-MP.

::

    input -> [split] -> layer 1, each rank its neurons -> ReLU -> split -> ... -> split -> home

Every rank needs the activations of the others. It sees its own as they are and the others' as
``Split`` sends them. The first rank is home: it gives the input, unless all ranks have it, and gets
the result. The others get a tensor without columns, for autograd to come back through.
``LocalDividedMlp`` is all ranks in one process, bit for bit.

Shape legend: ``B`` samples, ``D`` columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from laconic.codecs.threshold import Threshold
from laconic.errors import ConfigError
from laconic.nn.split import AnySplit, LocalSplit, Split
from laconic.nn.split_rank import ranks_of

__all__ = ["DividedMlp", "LocalDividedMlp", "divide_neurons"]

MakeSplit = Callable[[Sequence[int], Sequence[int], str], AnySplit]


def divide_neurons(neurons: int, ranks: int) -> list[slice]:
    """Return each rank's neurons: neighbors, as many as others have or one more."""
    ends = [neurons * r // ranks for r in range(ranks + 1)]
    return [slice(ends[r], ends[r + 1]) for r in range(ranks)]


class _Neurons(nn.Module):
    """Neurons of one layer: those of this rank, or all of them, with the slice of each rank."""

    def __init__(self, weight: Tensor, bias: Tensor, slices: Sequence[slice] | None) -> None:
        super().__init__()
        self.weight, self.bias, self._slices = weight, bias, slices

    def forward(self, views: Sequence[Tensor]) -> list[Tensor]:
        """Take what each rank of this process sees of the layer before; return its activations."""
        if self._slices is None:
            return [torch.relu(nn.functional.linear(views[0], self.weight, self.bias))]
        return [
            torch.relu(nn.functional.linear(view_BD, self.weight[own], self.bias[own]))
            for view_BD, own in zip(views, self._slices, strict=True)
        ]


class _DividedLayers(nn.Module):
    """Splits between all ranks, and the neurons of those of this process between them."""

    layers: nn.ModuleList
    """Of :class:`_Neurons`."""

    def __init__(
        self, name: str, ranks: tuple[int, ...], layers: int, make_split: MakeSplit, *, shared_input: bool
    ) -> None:
        super().__init__()
        self.ranks = ranks
        home, targets = ranks[:1], [ranks] * (layers - 1)
        self.enter = None if shared_input else make_split(home, ranks, f"{name}.input")
        self.splits = nn.ModuleList(
            make_split(ranks, target, f"{name}.{k}") for k, target in enumerate([*targets, home])
        )

    def _pass(self, views: Sequence[Tensor | None]) -> Tensor:
        """Take the input of each rank of this process; return the result of the first."""
        views = views if self.enter is None else self.enter.cross(views)
        for layer, split in zip(self.layers, self.splits, strict=True):
            views = split.cross(layer(views))  # type: ignore[operator]
        assert views[0] is not None, "every rank gets a tensor"
        return views[0]


class DividedMlp(_DividedLayers):
    """The part of an MLP that this rank has.

    >>> mlp = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU())
    >>> divided = laconic.DividedMlp(mlp, ranks=[0])  # usually [0, 1]: three neurons on each rank
    >>> divided(torch.ones(2, 8)).shape
    torch.Size([2, 6])
    """

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
        """``mlp`` is the whole MLP, the same on all ranks; this rank copies its own neurons.

        ``shared_input``: every rank has the input, so that it need not be sent.
        """
        several, whole = ranks_of(name, "ranks", ranks), _layers_of(name, mlp)

        def make_split(source: Sequence[int], target: Sequence[int], name: str) -> Split:
            return Split(source, target, threshold=threshold, name=name, group=group)

        super().__init__(name, several, len(whole), make_split, shared_input=shared_input)
        place = several.index(dist.get_rank())  # the splits have refused a rank that is not among them
        self.layers = nn.ModuleList(
            _own_neurons(layer, divide_neurons(layer.out_features, len(several))[place]) for layer in whole
        )

    def forward(self, x_BD: Tensor | None = None) -> Tensor:
        """Take the input if this rank has it; return the result at home, no columns elsewhere."""
        return self._pass([x_BD])


class LocalDividedMlp(_DividedLayers):
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
        """``mlp`` is divided among this many ranks."""
        whole = _layers_of(name, mlp)

        def make_split(source: Sequence[int], target: Sequence[int], name: str) -> LocalSplit:
            return LocalSplit(source, target, threshold=threshold, name=name)

        super().__init__(name, tuple(range(ranks)), len(whole), make_split, shared_input=shared_input)
        self.layers = nn.ModuleList(
            _Neurons(layer.weight, layer.bias, divide_neurons(layer.out_features, ranks)) for layer in whole
        )

    def forward(self, x_BD: Tensor) -> Tensor:
        """Return what the first rank would get."""
        others = [x_BD if self.enter is None else None] * (len(self.ranks) - 1)
        return self._pass([x_BD, *others])


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


def _own_neurons(layer: nn.Linear, own: slice) -> _Neurons:
    """Copy some neurons of a layer."""
    weight, bias = (nn.Parameter(x.detach()[own].clone()) for x in (layer.weight, layer.bias))
    return _Neurons(weight, bias, None)
