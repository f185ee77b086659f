"""Split: a model whose layers live on several ranks; only its largest activations travel.

One rank runs what is before the split, another what is after it::

    split = Split(source=0, target=1, threshold=Threshold(0.05))

    rank 0:  anchor = split(before(x));  anchor.sum().backward()      # receives the gradient
    rank 1:  loss = criterion(after(split()), labels);  loss.backward()    # sends it

Where several ranks share a layer, each with some of its neurons, every target gets the activations
of all sources side by side, its own untouched: ``Split(source=[0, 1], target=[0, 1])``. What a pure
source returns has no columns: it is there for autograd to come back through.

In data parallelism every replica makes a split between its own ranks. A split has no parameters and
nothing to checkpoint. Evaluation sends what training sends, because the layers behind the split
have learned from that.

In one process, ``SplitLayer`` stands between two layers and ``LocalSplit`` between any ranks: the
same ``SplitRank`` computes, so that they train and serve what real ranks would, bit for bit.

Shape legend: ``B`` samples, ``D`` columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from laconic.codecs.threshold import Threshold
from laconic.errors import ConfigError
from laconic.exchange.ledger import Ledger
from laconic.exchange.ranks.split_wire import GroupWire, LocalWire, SplitMessage
from laconic.nn.split_rank import SplitEnds, SplitPass, SplitRank, ranks_of

__all__ = ["AnySplit", "LocalSplit", "Split", "SplitLayer"]

Ranks = int | Sequence[int]


class AnySplit(nn.Module):
    """Activations from source ranks to target ranks and their gradients back.

    Its subclasses say which ranks are in this process.
    """

    def __init__(self, source: Ranks, target: Ranks, threshold: Threshold | None, name: str) -> None:
        super().__init__()
        sources, targets = ranks_of(name, "source", source), ranks_of(name, "target", target)
        self.ends = SplitEnds(name, sources, targets, threshold or Threshold())
        self.ledger = Ledger((name,))
        """Bytes that left the ranks of this process in training: masks under ``ids``."""
        self.turn = 0
        """Number of forward passes so far.

        It seeds the rounding of gradients: set it to resume bit for bit.
        """
        self.kept = 0
        """Number of entries that traveled in training, counted once for each source."""
        self.entries = 0
        """Number of entries that there were."""
        self.ranks: list[SplitRank] = []
        """Those of this process."""
        self._anchor = torch.zeros(0, requires_grad=True)

    def cross(self, parts: Sequence[Tensor | None]) -> list[Tensor]:
        """Take activations from each rank of this process, None from one that is no source.

        Returns what each of them gets: the activations of all sources, or no columns.
        """
        turn, self.turn = self.turn, self.turn + 1
        passes = [
            rank.send(x_BD, turn, counted=self.training) for rank, x_BD in zip(self.ranks, parts, strict=True)
        ]
        for rank, p in zip(self.ranks, passes, strict=True):
            rank.receive(p)
            if p.counted and p.selection is not None:
                self.kept += p.selection.count
                self.entries += p.selection.rows * p.selection.cols
        if any(p.wants_gradient for p in passes):
            return list(_Crossing.apply(self._anchor, self.ranks, passes, *parts))  # type: ignore[no-untyped-call]
        return [p.take_joined() for p in passes]

    def extra_repr(self) -> str:
        """Say who sends what to whom."""
        ends = self.ends
        return f"{ends.name!r}, {ends.sources} -> {ends.targets}, {ends.threshold}"


class Split(AnySplit):
    """Activations from source ranks to target ranks, and their gradients back.

    >>> split = laconic.Split(source=0, target=0)  # usually target=1: the rank of the next layers
    >>> split(torch.ones(2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        source: int | Sequence[int],
        target: int | Sequence[int],
        *,
        threshold: Threshold | None = None,
        name: str = "split",
        group: Any = None,
    ) -> None:
        """Ranks are those of the whole job. Splits between the same ranks need different names.

        ``group`` is a process group on the CPU with all of these ranks; None: the default one.
        """
        super().__init__(source, target, threshold, name)
        if not dist.is_initialized():
            raise ConfigError(
                f"{name}: expected a process group, got none; call torch.distributed.init_process_group first, "
                "or use SplitLayer in one process"
            )
        self.rank, ends = dist.get_rank(), self.ends
        if self.rank not in (*ends.sources, *ends.targets):
            raise ConfigError(
                f"{name}: rank {self.rank} is neither a source {ends.sources} nor a target {ends.targets}; "
                "a replica makes splits between its own ranks"
            )
        wire = GroupWire(name, self.rank, ends.digest, ends.max_value_bytes, group)
        self.ranks = [SplitRank(ends, self.rank, wire, self.ledger)]

    def forward(self, x_BD: Tensor | None = None) -> Tensor:
        """Send this rank's activations if it is a source; return those of all if it is a target."""
        return self.cross([x_BD])[0]


class LocalSplit(AnySplit):
    """All ranks of a split in one process. Bytes in its ledger are those of all ranks together."""

    def __init__(
        self, source: Ranks, target: Ranks, *, threshold: Threshold | None = None, name: str = "split"
    ) -> None:
        super().__init__(source, target, threshold, name)
        mailbox: dict[tuple[int, int], SplitMessage] = {}
        ends = self.ends
        self.ranks = [
            SplitRank(ends, rank, LocalWire(rank, mailbox), self.ledger)
            for rank in dict.fromkeys((*ends.sources, *ends.targets))
        ]

    def forward(self, parts: Sequence[Tensor | None]) -> list[Tensor]:
        """Take and return a tensor for each rank as ``cross`` does, those of sources first."""
        return self.cross(parts)


class SplitLayer(nn.Module):
    """A split in stages, in one process: returns what the next stage would receive.

    It serves a model that was trained split, and trains one before there are ranks.
    """

    def __init__(self, *, threshold: Threshold | None = None, name: str = "split") -> None:
        super().__init__()
        self.split = LocalSplit(0, 1, threshold=threshold, name=name)

    def forward(self, x_BD: Tensor) -> Tensor:
        """Return the activations with those that do not travel as zeros, the others rounded."""
        return self.split.cross([x_BD, None])[1]


class _Crossing(torch.autograd.Function):
    """Autograd's node; the anchor makes backward reach a rank that gave no activations, too."""

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, ranks: list[SplitRank], passes: list[SplitPass], *parts: Tensor | None
    ) -> tuple[Tensor, ...]:
        ctx.anchor, ctx.ranks, ctx.passes = anchor, ranks, passes
        return tuple(p.take_joined() for p in passes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        for rank, p, gradient_BN in zip(ctx.ranks, ctx.passes, gradients, strict=True):
            rank.send_gradients(p, gradient_BN)
        back = [rank.receive_gradients(p) for rank, p in zip(ctx.ranks, ctx.passes, strict=True)]
        return torch.zeros_like(ctx.anchor), None, None, *back
