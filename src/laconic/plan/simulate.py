"""Predicts the step of clusters of any size, and where each method stops paying.

Devices are equal and joined by one switch. With all methods off this is the classic hybrid of DLRM:
pooled vectors in float32, ids of eight bytes, dense gradients summed along a ring, and table-wise
sharding, or pieces of tables if there are more devices than tables. Its balance is perfect, which
flatters it. Each method changes that::

    dedup      row-wise sharding; each distinct row once for each device, ids coded
    bounded    rows and gradients within an error bound: fewer bytes, codec time for rows and blocks
    dense      dense gradients compressed; heads announce the pieces of all ranks to all
    hot rows   the hottest rows on every device, without exchange; a ring sums their gradients

::

    step = compute + codecs + max(0, wire - overlap x compute)
    wire = ids + rows + gradients + max(0, sums - dense overlap x compute)
    each = latency of its rounds + bytes / bandwidth
    rows = header of each block + rows x bytes of a row    (``cost.blocks``), and so gradients

Sums of dense gradients and hot rows travel beside the backward pass and beside the gradients of
rows. If an all-to-all gets only a share of the bandwidth, they take what it leaves.

The hot set is the best one: rows whose exchange costs more than their sum, as long as they fit
(``docs/papers/avoidance.md``, proposition 4). Shape legend: ``T`` tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from laconic.cost.blocks import blocks_bytes, filled_share
from laconic.cost.frequencies import Frequencies, hottest_of_all
from laconic.cost.id_bytes import sorted_ids_bytes
from laconic.cost.link import head_bytes, piece_heads_bytes, ring_bytes, step_s, varint_bytes
from laconic.cost.measure import CodecFigures
from laconic.cost.needed_rows import distinct_rows, needed_G
from laconic.errors import ConfigError

__all__ = [
    "METHODS",
    "PAYS",
    "Cell",
    "Fabric",
    "Methods",
    "ModelLoad",
    "StepCost",
    "paying_spans",
    "simulate",
    "step_cost",
    "stops_paying",
]

METHODS = ("dedup", "bounded", "dense", "hot")
PAYS = 1.01
"""A method pays where it makes the best step this much faster."""


@dataclass(frozen=True, slots=True)
class Methods:
    """The methods that are on."""

    dedup: bool = False
    bounded: bool = False
    dense: bool = False
    hot: bool = False

    @property
    def text(self) -> str:
        """Names of the methods that are on."""
        return " + ".join(name for name in METHODS if getattr(self, name)) or "none"


ALL_METHODS = tuple(Methods(*chosen) for chosen in product((False, True), repeat=len(METHODS)))


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelLoad:
    """The model that is trained; all devices have the same load."""

    frequencies_T: tuple[Frequencies, ...]
    dim: int
    samples: int
    """Samples of a device in a step."""
    compute_s: float
    dense_bytes: float
    forward: CodecFigures
    backward: CodecFigures
    codec_threads: float
    """Number of cores that encode and decode at the same time."""
    dense_ratio: float
    dense_s_per_byte: float
    """Seconds per byte of encoding a dense gradient, and of decoding it and the sum."""
    hot_bytes: float
    """Bytes of a device's memory for copies of hot rows."""
    sync_every: int
    """Steps between two sums of hot rows' gradients; more than 1 is bounded staleness."""
    overlap: float
    """Share of computation that hides transfers."""
    dense_overlap: float
    """Share of computation, in the backward pass, that hides sums of dense gradients and hot
    rows."""

    def __post_init__(self) -> None:
        if not self.frequencies_T or self.dim < 1 or self.samples < 1 or self.sync_every < 1:
            raise ConfigError(
                f"simulate: expected tables, and dim, samples and sync_every of at least 1, got {len(self.frequencies_T)} "
                f"tables, {self.dim!r}, {self.samples!r} and {self.sync_every!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The network between the devices."""

    bytes_per_s: float
    """Bytes per second in each direction of a device's link."""
    latency_s: float
    message_s: float
    """Seconds of a processor for one message."""
    all_to_all: float = 1.0
    """Share of the bandwidth that an all-to-all gets. It is below 1 if the core of the network is
    narrower than its edge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Seconds of a step, and the bytes that a device sends in it."""

    step_s: float
    wire_s: float
    codec_s: float
    ids_bytes: float
    """Bytes of coded ids and of all announcements."""
    announced_bytes: float
    """Those of them that announce sizes."""
    rows_bytes: float
    """Bytes of rows and their gradients."""
    dense_bytes: float
    """Bytes of dense gradients, and of what announces them."""
    hot_bytes: float
    hot_rows: int


@dataclass(frozen=True, slots=True)
class Cell:
    """Costs of all combinations of methods for one number of devices and one bandwidth."""

    ranks: int
    gbps: float
    costs: dict[Methods, StepCost]

    @property
    def best(self) -> Methods:
        """The fastest combination; of equals that with fewer methods."""
        return min(
            self.costs, key=lambda m: (self.costs[m].step_s, sum(getattr(m, name) for name in METHODS))
        )

    def alone(self, method: str) -> float:
        """Return the step with all methods off over the step with this one alone."""
        return self.costs[Methods()].step_s / self.costs[Methods(**{method: True})].step_s

    def gain(self, method: str) -> float:
        """Return the best step without a method over the best with it; below 1 it does not pay."""
        with_s, without_s = (
            min(cost.step_s for methods, cost in self.costs.items() if getattr(methods, method) is on)
            for on in (True, False)
        )
        return without_s / with_s


def simulate(
    model: ModelLoad,
    ranks: Sequence[int],
    gbps: Sequence[float],
    *,
    latency_s: float,
    message_s: float,
    all_to_all: float = 1.0,
) -> Iterator[Cell]:
    """Yield a cell for each number of devices and bandwidth."""
    for number in ranks:
        for speed in gbps:
            network = Fabric(
                bytes_per_s=speed * 1e9 / 8, latency_s=latency_s, message_s=message_s, all_to_all=all_to_all
            )
            yield Cell(number, speed, {m: step_cost(model, network, number, m) for m in ALL_METHODS})


def stops_paying(cells: Sequence[Cell], method: str) -> float:
    """Return the Gbit/s from which on a method does not pay any more.

    It is infinite if the method still pays at the largest bandwidth, and 0 if it never pays.
    ``cells`` are those of one number of devices.
    """
    by_speed = sorted(cells, key=lambda cell: cell.gbps)
    spans = paying_spans([cell.gbps for cell in by_speed], [cell.gain(method) for cell in by_speed])
    return spans[-1][1] if spans else 0.0


def paying_spans(gbps: Sequence[float], gains: Sequence[float]) -> list[tuple[float, float]]:
    """Return the spans of bandwidths in which a method pays, rising.

    A span begins at 0 if the method pays at the lowest bandwidth, and ends at infinity if it pays
    at the largest. Between two bandwidths the gain is taken for linear in their logarithm.
    """
    spans: list[tuple[float, float]] = []
    begin = 0.0 if gains[0] >= PAYS else None
    for at in range(1, len(gains)):
        before, now = gains[at - 1], gains[at]
        if (before >= PAYS) == (now >= PAYS):
            continue
        left, right = math.log(gbps[at - 1]), math.log(gbps[at])
        crossing = math.exp(left + (right - left) * (before - PAYS) / (before - now))
        if begin is None:
            begin = crossing
        else:
            spans.append((begin, crossing))
            begin = None
    return spans if begin is None else [*spans, (begin, math.inf)]


def step_cost(model: ModelLoad, network: Fabric, ranks: int, methods: Methods) -> StepCost:
    """Add up one step of one device."""
    if ranks < 1:
        raise ConfigError(f"simulate: expected at least one rank, got {ranks!r}")
    least = _least_hot_rate(model, network, methods) if methods.hot and ranks > 1 else math.inf
    traffic = _exchange(model, ranks, methods.dedup, least)
    sent, codec_s = _rows_on_the_wire(model, traffic, methods.bounded)
    rows_bytes = sum(sent)
    dense_ratio = model.dense_ratio if methods.dense else 1.0
    dense_bytes = ring_bytes(model.dense_bytes, ranks) / dense_ratio
    if methods.dense and ranks > 1 and model.dense_bytes:
        dense_bytes += piece_heads_bytes(ranks, model.dense_bytes / dense_ratio / ranks)
    summed = 4.0 * model.dim * traffic.hot_rows / model.sync_every
    hot_bytes = ring_bytes(summed, ranks) / dense_ratio
    if methods.dense and ranks > 1:
        codec_s += (model.dense_bytes + summed) * model.dense_s_per_byte / model.codec_threads
    announced_bytes = _announced(len(model.frequencies_T), traffic, sent, ranks)
    ids_bytes = traffic.ids_bytes + announced_bytes
    exchanged_s = (ids_bytes + rows_bytes) / (network.bytes_per_s * network.all_to_all)
    summed_s = (dense_bytes + hot_bytes) / network.bytes_per_s
    # gradients are about half of rows_bytes
    left_s = (1 / network.all_to_all - 1) * rows_bytes / 2 / network.bytes_per_s
    left_s += model.dense_overlap * model.compute_s
    sums = 1 + (traffic.hot_rows > 0) / model.sync_every
    wire_s = exchanged_s + max(0.0, summed_s - left_s) + _rounds_s(network, ranks, sums)
    return StepCost(
        step_s=float(step_s(model.compute_s + codec_s, wire_s, model.overlap * model.compute_s)),
        wire_s=wire_s,
        codec_s=codec_s,
        ids_bytes=ids_bytes,
        announced_bytes=announced_bytes,
        rows_bytes=rows_bytes,
        dense_bytes=dense_bytes,
        hot_bytes=hot_bytes,
        hot_rows=traffic.hot_rows,
    )


def _rounds_s(network: Fabric, ranks: int, sums: float) -> float:
    """Return latency and time for messages: of three directions in two rounds each, and of sums."""
    if ranks == 1:
        return 0.0
    exchanges, steps = 6, 2 * math.log2(ranks)  # sums of short messages go by halves, not along a ring
    messages = exchanges * (ranks - 1) + sums * steps
    return (exchanges + sums * steps) * network.latency_s + messages * network.message_s


def _announced(tables: int, traffic: _Exchange, sent: tuple[float, float], ranks: int) -> float:
    """Return bytes of heads: sizes and counts of two lists of ids a table, sizes of blocks.

    Where owners do not pool, the second list, the lengths of bags, is empty.
    """
    if ranks == 1:
        return 0.0
    blocks = max(traffic.blocks, 1e-9)  # none, where all rows are hot
    filled = traffic.blocks / (ranks - 1)
    sizes = filled * varint_bytes(traffic.ids_bytes / blocks)
    heads = head_bytes(4 * tables, sizes + filled * varint_bytes(traffic.rows / blocks))
    heads += sum(head_bytes(tables, filled * varint_bytes(nbytes / blocks)) for nbytes in sent)
    return heads * (ranks - 1)


def _rows_on_the_wire(
    model: ModelLoad, traffic: _Exchange, bounded: bool
) -> tuple[tuple[float, float], float]:
    """Return bytes of rows and of gradients, and seconds of coding; no block exceeds its rows."""
    exact = 4.0 * model.dim * traffic.rows
    if not bounded:
        return (exact, exact), 0.0
    nbytes, seconds = [], 0.0
    for codec in (model.forward, model.backward):
        coded = traffic.distinct * codec.row_bytes + traffic.reference_bytes
        nbytes.append(blocks_bytes(coded, exact, traffic.blocks, codec.block_bytes))
        seconds += traffic.rows * codec.row_s + traffic.blocks * codec.block_s
    return (nbytes[0], nbytes[1]), seconds / model.codec_threads


@dataclass(frozen=True, slots=True)
class _Exchange:
    """What one device sends in all-to-all exchanges, not in sums."""

    rows: float
    """Number of rows that it receives; it sends as many rows, and as many gradients."""
    distinct: float
    """Number of rows that differ within their block; the bounded codec finds equal ones."""
    reference_bytes: float
    """Bytes of references to equal rows."""
    blocks: float
    """Number of blocks that hold the rows of one direction; those without rows do not count."""
    ids_bytes: float
    hot_rows: int


@lru_cache(maxsize=4096)
def _exchange(model: ModelLoad, ranks: int, dedup: bool, least_hot_rate: float) -> _Exchange:
    """Return the expected exchange, as ``TableCosts`` does, but for any number of devices."""
    rows = distinct = references = ids = blocks = 0.0
    tables, away = len(model.frequencies_T), (ranks - 1) / ranks
    budget = int(model.hot_bytes / (4 * model.dim)) if least_hot_rate < math.inf else 0
    hot_T = hottest_of_all(model.frequencies_T, budget, least_hot_rate)
    for frequencies, hot in zip(model.frequencies_T, hot_T, strict=True):
        cold = frequencies.cut(hot.rows)[1] if hot.rows else frequencies
        lookups = model.samples * frequencies.lookups_per_sample
        needed = away * distinct_rows(cold, lookups)
        if dedup:
            rows, distinct = rows + needed, distinct + needed
            likely_G = needed_G(cold, lookups)
            lists = (ranks - 1) * filled_share(cold.count_G, likely_G, ranks)
            blocks += lists
            if lists:  # those without ids take nothing, so that others have more of them
                held_G = cold.count_G.astype(np.float64) * (away / lists)
                ids += lists * sorted_ids_bytes(held_G, likely_G, "ranked")
            continue
        # a sample needs no vector only if all of its ids are hot
        vectors = away * model.samples * (1 - (1 - cold.share) ** frequencies.lookups_per_sample)
        repeats = frequencies.lookups_per_sample == 1 and needed < vectors
        rows += vectors
        distinct += needed if repeats else vectors
        references += vectors * math.log2(max(needed, 2)) / 8 if repeats else 0.0
        ids += away * 8 * lookups * cold.share
    if not dedup:
        blocks = (ranks - 1) * max(tables / ranks, 1.0)
    return _Exchange(rows, distinct, references, blocks, ids, sum(hot.rows for hot in hot_T))


def _least_hot_rate(model: ModelLoad, network: Fabric, methods: Methods) -> float:
    """Return the rate of lookups from which on copies of a row pay (proposition 4).

    A sum costs two vectors a step, or a share of that. The exchange costs two vectors, or their
    coded bytes, for each lookup (pooled), or with the probability q that the row is needed (dedup).
    """
    summed = 2 * 4.0 * model.dim / (model.dense_ratio if methods.dense else 1.0) / model.sync_every
    sent = 2 * 4.0 * model.dim
    if methods.bounded:
        sent = model.forward.row_bytes + model.backward.row_bytes
    worth = summed / (sent / network.all_to_all)
    if not methods.dedup:
        return worth / model.samples
    return -math.log1p(-worth) / model.samples if worth < 1 else math.inf
