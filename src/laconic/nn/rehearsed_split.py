"""RehearsedSplit: what ``Split`` does to activations and gradients, in one process, bit for bit.

It tells what a threshold costs before there are ranks, and serves a model that was trained split::

    split = RehearsedSplit(source=0, target=1, threshold=Threshold(0.05))
    (x_BD,) = split([x_BD])

Shape legend: ``B`` samples, ``D`` columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from laconic.codecs.threshold import AnySelection, Threshold
from laconic.errors import ConfigError
from laconic.exchange.ledger import Ledger
from laconic.nn.split_part import SplitPart, ranks_of

__all__ = ["RehearsedSplit"]


class RehearsedSplit(nn.Module):
    """All ranks of a split. Bytes in its ledger are those of all ranks together."""

    def __init__(
        self,
        source: int | Sequence[int],
        target: int | Sequence[int],
        *,
        threshold: Threshold | None = None,
        name: str = "split",
    ) -> None:
        super().__init__()
        self.name = name
        self.sources, self.targets = ranks_of(name, "source", source), ranks_of(name, "target", target)
        self.threshold = threshold or Threshold()
        self.ledger = Ledger((name,))
        self.turn = 0
        self.kept = 0
        """Entries that traveled in training, once for each source."""
        self.entries = 0
        """Entries that there were."""
        self._part = SplitPart(name, self.threshold, self.ledger)

    def forward(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Take the activations of each source; return what each target gets."""
        if len(parts) != len(self.sources):
            raise ConfigError(
                f"{self.name}: expected activations of {len(self.sources)} sources, got {len(parts)}"
            )
        turn, self.turn = self.turn, self.turn + 1
        crossed: list[tuple[Tensor, ...]] = []
        for source, x_BD in zip(self.sources, parts, strict=True):
            if self.targets == (source,):
                crossed.append((x_BD,))
            else:
                crossed.append(_Cross.apply(x_BD, self, source, turn))  # type: ignore[no-untyped-call]
        return [
            torch.cat(views, dim=1) if len(views) > 1 else views[0] for views in zip(*crossed, strict=True)
        ]


class _Cross(torch.autograd.Function):
    """One source's activations as each target sees them."""

    @staticmethod
    def forward(ctx: Any, x_BD: Tensor, split: RehearsedSplit, source: int, turn: int) -> tuple[Tensor, ...]:
        selection, parcel = split._part.pack(split._part.check(x_BD), x_BD.requires_grad)
        _, activations = split._part.unpack(parcel)
        ctx.split, ctx.source, ctx.turn, ctx.selection = split, source, turn, selection
        others = [target for target in split.targets if target != source]
        if split.training:
            split._part.record("forward", [parcel] * len(others), turn)
            split.kept += selection.count
            split.entries += x_BD.numel()
        return tuple(
            x_BD.clone() if target == source else torch.from_numpy(activations.copy())
            for target in split.targets
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        split: RehearsedSplit = ctx.split
        selection: AnySelection = ctx.selection
        total: Tensor | None = None
        parcels = []
        for place, (target, g_BD) in enumerate(zip(split.targets, gradients, strict=True)):
            arrived = g_BD
            if target != ctx.source:
                parcel = split._part.pack_gradient(selection, g_BD, ctx.turn, place)
                parcels.append(parcel)
                arrived = split._part.unpack_gradient(selection, parcel)
            total = arrived if total is None else total + arrived
        if split.training:
            split._part.record("backward", parcels, ctx.turn)
        return total, None, None, None
