"""What one rank of a split does: selects, encodes and sends; receives, decodes and joins.

::

    x_BD --select--> values_K --encode--> bytes --decode--> values_K --spread--> x_BD with zeros
    g_BD --take, same entries--> values_K --encode--> bytes ...                  g_BD with zeros

A pass has four steps: ``send``, ``receive``, ``send_gradients``, ``receive_gradients``. A process
that is one rank takes them one after the other. A process that is all ranks takes each step for all
of them before the next, in one thread. So both compute the same bits.

Shape legend: ``B`` samples, ``D`` columns, ``N`` columns of all sources, ``K`` entries that travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.codecs.threshold import AnySelection, Threshold
from laconic.errors import CommError, ConfigError
from laconic.exchange.ledger import Direction, Entry, Ledger
from laconic.exchange.ranks.split_wire import HEADER_BYTES, SplitMessage, SplitWire

__all__ = ["SplitEnds", "SplitPass", "SplitRank", "ranks_of"]

Floats = NDArray[np.float32]
_ODD = 0x9E3779B97F4A7C15  # turns and targets get seeds far apart


def ranks_of(name: str, where: str, ranks: int | Sequence[int]) -> tuple[int, ...]:
    """Return ranks as a tuple; ``ConfigError`` if there are none or one is there twice."""
    several = (ranks,) if isinstance(ranks, int) else tuple(ranks)
    if not several or len(set(several)) < len(several) or min(several) < 0:
        raise ConfigError(f"{name}: expected {where} as one or more different ranks, got {ranks!r}")
    return several


@dataclass(frozen=True, slots=True)
class SplitEnds:
    """What all ranks of a split agree on."""

    name: str
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    threshold: Threshold

    @property
    def digest(self) -> int:
        """Number that tells this split from others, on every rank."""
        return crc32(repr((self.name, self.sources, self.targets, self.threshold)).encode())

    def max_value_bytes(self, count: int) -> int:
        """Return the most bytes that ``count`` activations or gradients can take."""
        codecs = (self.threshold.values, self.threshold.gradients)
        return max(4 * count, *(codec.max_bytes((count,)) for codec in codecs if codec is not None), 0)


@dataclass(frozen=True, slots=True)
class _Received:
    """What came from one source."""

    selection: AnySelection
    wants_gradient: bool


@dataclass(slots=True)
class SplitPass:
    """One forward pass of one rank, and what its backward needs."""

    turn: int
    counted: bool
    """Whether the ledger gets it: evaluation is not counted."""
    rows: int | None = None
    own_BD: Floats | None = None
    """Activations of this rank, if it is a source."""
    own_wants: bool = False
    """Whether they need a gradient."""
    selection: AnySelection | None = None
    """Entries of this rank's activations that were sent; None: they were sent to nobody."""
    received: dict[int, _Received] = field(default_factory=dict)
    widths: list[int] = field(default_factory=list)
    """Number of columns of each source."""
    joined_BN: Tensor | None = None
    """Activations of all sources side by side, on a target."""
    own_gradient_BD: Tensor | None = None
    """What this rank's activations did on this rank, if it is a target too."""
    sent: list[SplitMessage] = field(default_factory=list)
    encode_s: float = 0.0
    decode_s: float = 0.0

    @property
    def wants_gradient(self) -> bool:
        """Whether backward has anything to do on this rank."""
        return self.own_wants or any(source.wants_gradient for source in self.received.values())

    def take_joined(self) -> Tensor:
        """Return the activations of all sources side by side; no columns on a pure source."""
        joined_BN, self.joined_BN = self.joined_BN, None
        return torch.empty(self.rows or 0, 0) if joined_BN is None else joined_BN


@dataclass(frozen=True, slots=True)
class SplitRank:
    """One rank of a split: what it computes, its wire, and the ledger that it enters bytes in."""

    ends: SplitEnds
    rank: int
    wire: SplitWire
    ledger: Ledger

    def send(self, x_BD: Tensor | None, turn: int, *, counted: bool) -> SplitPass:
        """Begin a pass: send this rank's activations, if it is a source."""
        p = SplitPass(turn, counted)
        is_source = self.rank in self.ends.sources
        if is_source != (x_BD is not None):
            role = "a source, which gives" if is_source else "only a target, which gives no"
            raise ConfigError(
                f"{self.ends.name}: rank {self.rank} is {role} activations, got {type(x_BD).__name__}"
            )
        if x_BD is not None:
            p.own_BD = self._check(x_BD)
            p.rows = len(p.own_BD)
            p.own_wants = x_BD.requires_grad and torch.is_grad_enabled()
        if self.rank in self.ends.targets:
            self.wire.post(self._others(self.ends.sources), turn)
        others = self._others(self.ends.targets)
        if p.own_BD is not None and others:
            start = perf_counter()
            message = self._encode(p.own_BD, p)
            p.sent, p.encode_s = [message] * len(others), perf_counter() - start
            self.wire.send(dict.fromkeys(others, message), turn)
        return p

    def receive(self, p: SplitPass) -> None:
        """End the forward pass: join the activations of all sources, if this rank is a target."""
        if self.rank in self.ends.targets:
            messages = {source: self._receive_from(source, p) for source in self._others(self.ends.sources)}
            start = perf_counter()
            p.joined_BN = self._join(messages, p)
            p.decode_s += perf_counter() - start
        self.wire.finish(p.turn)
        self._record("forward", p)
        p.own_BD = None

    def send_gradients(self, p: SplitPass, gradient_BN: Tensor) -> None:
        """Send every source the gradient of what it had sent, if this rank is a target."""
        if p.own_wants:
            self.wire.post(self._others(self.ends.targets), p.turn, back=True)
        start = perf_counter()
        messages: dict[int, SplitMessage] = {}
        if self.rank in self.ends.targets:
            parts = torch.split(gradient_BN, p.widths, dim=1)
            for source, part_BD in zip(self.ends.sources, parts, strict=True):
                if source == self.rank:
                    p.own_gradient_BD = part_BD
                elif p.received[source].wants_gradient:
                    messages[source] = self._encode_gradient(p.received[source].selection, part_BD, p.turn)
        p.sent, p.encode_s, p.decode_s = list(messages.values()), perf_counter() - start, 0.0
        self.wire.send(messages, p.turn, back=True)

    def receive_gradients(self, p: SplitPass) -> Tensor | None:
        """End the pass: return the gradient of this rank's activations, if they need one."""
        total = self._sum_gradients(p) if p.own_wants else None
        self.wire.finish(p.turn)
        self._record("backward", p)
        p.own_gradient_BD = None
        return total

    def _others(self, ranks: Sequence[int]) -> list[int]:
        return [rank for rank in ranks if rank != self.rank]

    def _check(self, x_BD: Tensor) -> Floats:
        """Return activations as an array; ``ConfigError`` for what cannot travel."""
        name = self.ends.name
        if not isinstance(x_BD, Tensor) or x_BD.dim() != 2:
            shape = tuple(x_BD.shape) if isinstance(x_BD, Tensor) else type(x_BD).__name__
            raise ConfigError(
                f"{name}: expected activations of shape (samples, columns), got {shape}; use x.flatten(1)"
            )
        if x_BD.dtype != torch.float32 or not x_BD.is_cpu:
            raise ConfigError(
                f"{name}: expected float32 on the CPU, got {x_BD.dtype} on {x_BD.device}; "
                "convert with x.float().cpu()"
            )
        return x_BD.detach().contiguous().numpy()

    def _encode(self, x_BD: Floats, p: SplitPass) -> SplitMessage:
        threshold = self.ends.threshold
        selection, values_K = threshold.select(x_BD)
        p.selection = selection
        mask, values = selection.encode(), threshold.encode_values(values_K)
        return SplitMessage(selection.rows, selection.cols, selection.count, p.own_wants, mask, values)

    def _receive_from(self, source: int, p: SplitPass) -> SplitMessage:
        message, name = self.wire.receive(source, p.turn), self.ends.name
        if p.rows is None:
            p.rows = message.rows
        if message.rows != p.rows:
            raise CommError(
                f"{name}: rank {source} sent {message.rows} samples at turn {p.turn}, others "
                f"{p.rows}; the ranks have different batches"
            )
        if message.wants_gradient and not torch.is_grad_enabled():
            raise CommError(
                f"{name}: rank {source} waits for a gradient of turn {p.turn}, but rank {self.rank} "
                "computes none; use torch.no_grad() on all ranks or on none"
            )
        return message

    def _join(self, messages: dict[int, SplitMessage], p: SplitPass) -> Tensor:
        """Decode what came, next to this rank's own activations, which stay as they are."""
        threshold = self.ends.threshold
        p.widths = [
            messages[source].cols if p.own_BD is None or source != self.rank else p.own_BD.shape[1]
            for source in self.ends.sources
        ]
        joined_BN = np.empty((p.rows or 0, sum(p.widths)), np.float32)
        parts = np.split(joined_BN, np.cumsum(p.widths)[:-1], axis=1)
        for source, part_BD in zip(self.ends.sources, parts, strict=True):
            if source == self.rank:
                part_BD[:] = p.own_BD
                continue
            m = messages[source]
            selection = threshold.read_selection(m.mask, m.rows, m.cols, m.count)
            selection.spread_into(threshold.decode_values(m.values, m.count), part_BD)
            p.received[source] = _Received(selection, m.wants_gradient)
        return torch.from_numpy(joined_BN)

    def _encode_gradient(self, selection: AnySelection, g_BD: Tensor, turn: int) -> SplitMessage:
        """Encode the gradient on the entries that traveled."""
        gradients_K = selection.take(g_BD.detach().numpy())
        place = self.ends.targets.index(self.rank)
        seed = crc32(self.ends.name.encode()) + _ODD * (turn * 1024 + place)
        block = self.ends.threshold.encode_gradients(gradients_K, seed)
        no_mask = np.empty(0, np.uint8)
        return SplitMessage(selection.rows, selection.cols, selection.count, False, no_mask, block)

    def _sum_gradients(self, p: SplitPass) -> Tensor:
        """Sum what this rank's activations did on every target, in the order of targets."""
        total: Tensor | None = None
        for target in self.ends.targets:
            if target == self.rank:
                own_BD = p.own_gradient_BD
                assert own_BD is not None, "a target has its own gradient"
                total = own_BD.clone() if total is None else total + own_BD  # others are added in place
                continue
            selection, gradients_K = self._receive_gradient(target, p)
            start = perf_counter()
            if total is None:
                total = torch.from_numpy(selection.spread(gradients_K))
            else:
                selection.add_to(gradients_K, total.numpy())
            p.decode_s += perf_counter() - start
        assert total is not None, "a split has targets"
        return total

    def _receive_gradient(self, target: int, p: SplitPass) -> tuple[AnySelection, Floats]:
        selection = p.selection
        assert selection is not None, "what was sent is known"
        message = self.wire.receive(target, p.turn, back=True)
        if message.count != selection.count:
            raise CommError(
                f"{self.ends.name}: rank {target} sent {message.count} gradients at turn {p.turn}, "
                f"{selection.count} activations had been sent; the ranks are out of step"
            )
        start = perf_counter()
        gradients_K = self.ends.threshold.decode_gradients(message.values, selection.count)
        p.decode_s += perf_counter() - start
        return selection, gradients_K

    def _record(self, direction: Direction, p: SplitPass) -> None:
        """Enter what this rank sent in one direction, if anything; masks go under ``ids``."""
        wire_s, sent, p.sent = self.wire.take_time(), p.sent, []
        if not p.counted or not sent:
            return
        before = np.array([sum(4 * m.rows * m.cols for m in sent)])
        values = np.array([sum(len(m.values) for m in sent)])
        times = (p.encode_s, wire_s, p.decode_s)
        self.ledger.record(direction, Entry(p.turn, before, values, HEADER_BYTES * len(sent), *times))
        if direction == "forward":
            mask = np.array([sum(len(m.mask) for m in sent)])
            self.ledger.record("ids", Entry(p.turn, np.array([0]), mask, 0, 0.0, 0.0, 0.0))
