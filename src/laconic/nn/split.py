"""Split: a model whose layers live on several ranks; only the largest activations cross, and gradients on them.

One rank runs what is before the split, another what is after it::

    split = Split(source=0, target=1, threshold=Threshold(0.05))

    rank 0:  anchor = split(before(x));  anchor.sum().backward()      # receives the gradient
    rank 1:  loss = criterion(after(split()), labels);  loss.backward()    # sends it

Where several ranks share a layer, each with some of its neurons, every target gets the activations of all sources
side by side, its own untouched: ``Split(source=[0, 1], target=[0, 1])``. What a pure source returns has no columns: it
is there for autograd to come back through.

In data parallelism every replica makes a split between its own ranks. A split has no parameters and nothing to
checkpoint. Evaluation sends what training sends, because the layers behind the split have learnt from that.

Shape legend: ``B`` samples, ``D`` columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from zlib import crc32

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from laconic.codecs.threshold import AnySelection, Threshold
from laconic.errors import CommError, ConfigError
from laconic.exchange.ledger import Direction, Ledger
from laconic.exchange.split_wire import Parcel, SplitWire
from laconic.nn.split_part import SplitPart, ranks_of, tag_of

__all__ = ["Split"]

Floats = NDArray[np.float32]


class Split(nn.Module):
    """Activations from source ranks to target ranks, and their gradients back."""

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

        ``group`` is a process group that knows the CPU and has all of these ranks; None: the default one.
        """
        super().__init__()
        self.name = name
        self.sources, self.targets = ranks_of(name, "source", source), ranks_of(name, "target", target)
        self.threshold = threshold or Threshold()
        self.ledger = Ledger((name,))
        """Bytes that left this rank in training: masks under ``ids``."""
        self.turn = 0
        """Forward passes so far, the same on all ranks. Gradients are rounded by it: set it to resume bit for bit."""
        self.anchor = torch.zeros(0, requires_grad=True)
        if not dist.is_initialized():
            raise ConfigError(
                f"{name}: expected a process group, got none; call torch.distributed.init_process_group first, "
                "or use RehearsedSplit in one process"
            )
        self.rank = dist.get_rank()
        if self.rank not in (*self.sources, *self.targets):
            raise ConfigError(
                f"{name}: rank {self.rank} is neither a source {self.sources} nor a target {self.targets}; "
                "a replica makes splits between its own ranks"
            )
        digest = crc32(repr((name, self.sources, self.targets, self.threshold)).encode())
        self._part = SplitPart(name, self.threshold, self.ledger)
        self._wire = SplitWire(name, self.rank, tag_of(name), digest, group)

    def forward(self, x_BD: Tensor | None = None) -> Tensor:
        """Send this rank's activations, if it is a source; return those of all sources, if it is a target."""
        is_source, is_target = self.rank in self.sources, self.rank in self.targets
        if is_source != (x_BD is not None):
            role = "a source, which gives" if is_source else "only a target, which gives no"
            raise ConfigError(
                f"{self.name}: rank {self.rank} is {role} activations, got {type(x_BD).__name__}"
            )
        own_BD = None if x_BD is None else self._part.check(x_BD)
        passing = _Pass(self.turn)
        passing.own_wants = x_BD is not None and x_BD.requires_grad and torch.is_grad_enabled()
        self.turn += 1
        if is_target:
            self._wire.ask([source for source in self.sources if source != self.rank], passing.turn)
        works = [] if own_BD is None else self._send(own_BD, passing)
        if is_target:
            self._receive(own_BD, passing)
        self._wire.finish(works, passing.turn)
        self._record("forward", passing.sent, passing)
        passing.sent = []  # backward needs only which entries they were
        if passing.wants_gradient:
            return _Cross.apply(self.anchor, x_BD, self, passing)  # type: ignore[no-any-return, no-untyped-call]
        return passing.joined()

    def extra_repr(self) -> str:
        """Say who sends what to whom."""
        return f"{self.name!r}, {self.sources} -> {self.targets}, {self.threshold}"

    def _send(self, own_BD: Floats, passing: _Pass) -> list[tuple[Any, Any]]:
        start = perf_counter()
        passing.rows = len(own_BD)
        others = [target for target in self.targets if target != self.rank]
        if not others:
            return []
        passing.selection, parcel = self._part.pack(own_BD, passing.own_wants)
        passing.sent, passing.encode_s = [parcel] * len(others), perf_counter() - start
        return self._wire.send(dict.fromkeys(others, parcel), passing.turn)

    def _receive(self, own_BD: Floats | None, passing: _Pass) -> None:
        parcels = {
            source: self._receive_from(source, passing) for source in self.sources if source != self.rank
        }
        start = perf_counter()
        widths = [
            parcels[source].cols if own_BD is None or source != self.rank else own_BD.shape[1]
            for source in self.sources
        ]
        joined_BN = np.empty((passing.rows or 0, sum(widths)), np.float32)
        parts = np.split(joined_BN, np.cumsum(widths)[:-1], axis=1)
        for source, part_BD in zip(self.sources, parts, strict=True):
            if source == self.rank:
                part_BD[:] = own_BD
            else:
                selection = self._part.unpack_into(parcels[source], part_BD)
                passing.heard[source] = _Heard(selection, parcels[source].wants_gradient)
        passing.widths, passing.joined_BN = widths, torch.from_numpy(joined_BN)
        passing.decode_s += perf_counter() - start

    def _receive_from(self, source: int, passing: _Pass) -> Parcel:
        parcel = self._wire.receive(source, passing.turn, self._part.most_value_bytes)
        if passing.rows is None:
            passing.rows = parcel.rows
        if parcel.rows != passing.rows:
            raise CommError(
                f"{self.name}: rank {source} sent {parcel.rows} samples at turn {passing.turn}, others "
                f"{passing.rows}; the ranks have different batches"
            )
        if parcel.wants_gradient and not torch.is_grad_enabled():
            raise CommError(
                f"{self.name}: rank {source} waits for a gradient of turn {passing.turn}, but rank {self.rank} "
                "computes none; use torch.no_grad() on all ranks or on none"
            )
        return parcel

    def _backward(self, gradient_BN: Tensor, passing: _Pass) -> Tensor | None:
        if passing.own_wants:
            self._wire.ask(
                [target for target in self.targets if target != self.rank], passing.turn, back=True
            )
        start = perf_counter()
        own: Tensor | None = None
        parcels: dict[int, Parcel] = {}
        if self.rank in self.targets:
            place = self.targets.index(self.rank)
            parts = torch.split(gradient_BN, passing.widths, dim=1)
            for source, part_BD in zip(self.sources, parts, strict=True):
                if source == self.rank:
                    own = part_BD
                elif passing.heard[source].wants_gradient:
                    selection = passing.heard[source].selection
                    parcels[source] = self._part.pack_gradient(selection, part_BD, passing.turn, place)
        passing.encode_s, passing.decode_s = perf_counter() - start, 0.0
        works = self._wire.send(parcels, passing.turn, back=True)
        total = self._sum_gradients(own, passing) if passing.own_wants else None
        self._wire.finish(works, passing.turn)
        self._record("backward", list(parcels.values()), passing)
        return total

    def _sum_gradients(self, own_BD: Tensor | None, passing: _Pass) -> Tensor:
        """Sum what this rank's activations did on every target, in the order of targets."""
        total: Tensor | None = None
        for target in self.targets:
            if target == self.rank:
                assert own_BD is not None, "a target has its own gradient"
                total = own_BD.clone() if total is None else total + own_BD  # others are added in place
            else:
                assert passing.selection is not None, "what was sent is known"
                parcel = self._wire.receive(target, passing.turn, self._part.most_value_bytes, back=True)
                if parcel.count != passing.selection.count:
                    raise CommError(
                        f"{self.name}: rank {target} sent {parcel.count} gradients at turn {passing.turn}, "
                        f"{passing.selection.count} activations had been sent; the ranks are out of step"
                    )
                start = perf_counter()
                if total is None:
                    total = self._part.unpack_gradient(passing.selection, parcel)
                else:
                    self._part.add_gradient(passing.selection, parcel, total)
                passing.decode_s += perf_counter() - start
        assert total is not None, "a split has targets"
        return total

    def _record(self, direction: Direction, parcels: list[Parcel], passing: _Pass) -> None:
        """Enter one direction of one pass, if this rank sent something in it."""
        wire_s = self._wire.take_time()
        if self.training and parcels:
            times = {"encode_s": passing.encode_s, "wire_s": wire_s, "decode_s": passing.decode_s}
            self._part.record(direction, parcels, passing.turn, **times)


@dataclass(frozen=True, slots=True)
class _Heard:
    """What came from one source."""

    selection: AnySelection
    wants_gradient: bool


@dataclass(slots=True)
class _Pass:
    """One forward pass, and what its backward needs."""

    turn: int
    rows: int | None = None
    selection: AnySelection | None = None
    """Of this rank's own activations."""
    own_wants: bool = False
    heard: dict[int, _Heard] = field(default_factory=dict)
    widths: list[int] = field(default_factory=list)
    """Columns of each source."""
    joined_BN: Tensor | None = None
    """Activations of all sources side by side, on a target."""
    sent: list[Parcel] = field(default_factory=list)
    encode_s: float = 0.0
    decode_s: float = 0.0

    @property
    def wants_gradient(self) -> bool:
        return self.own_wants or any(heard.wants_gradient for heard in self.heard.values())

    def joined(self) -> Tensor:
        """Activations of all sources side by side; on a rank that is no target, no columns."""
        joined_BN, self.joined_BN = self.joined_BN, None
        return torch.empty(self.rows or 0, 0) if joined_BN is None else joined_BN


class _Cross(torch.autograd.Function):
    """The way across; the anchor makes autograd come back even to a rank that gave no activations."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, x_BD: Tensor | None, split: Split, passing: _Pass) -> Tensor:
        ctx.split, ctx.passing, ctx.anchor = split, passing, anchor
        return passing.joined()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return torch.zeros_like(ctx.anchor), ctx.split._backward(gradients[0], ctx.passing), None, None
