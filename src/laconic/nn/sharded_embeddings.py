"""Embedding tables spread over ranks, looked up and trained over the compressed exchange.

``exchange.engine`` has what one rank does for tables of one dimension, ``exchange.pipeline`` shows
its threads in one step. Shape legend: ``B`` samples, ``T`` tables, ``D`` dimensions, ``S`` the
dimensions of all tables together, ``R`` rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any, Self, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from laconic.adapt.compression import Compression
from laconic.errors import ConfigError
from laconic.exchange.engine import RowEngine, check_plan
from laconic.exchange.exchange_plan import ExchangePlan, Policy
from laconic.exchange.ledger import Ledger
from laconic.exchange.pipeline import Purpose
from laconic.exchange.rank import RowSettings
from laconic.exchange.ranks.world import GroupWorld, LocalWorld, World, one_rank
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.optimizer import RowOptimizer, RowwiseAdagrad
from laconic.exchange.tables.placement import RowPlacement
from laconic.exchange.tables.table import Table
from laconic.exchange.traffic_report import TrafficReport
from laconic.lookups import Lookups
from laconic.nn.pending import JoinedPending, Pending
from laconic.nn.row_optimizer import EmbeddingOptimizer

__all__ = ["ShardedEmbeddings"]

_APART = 1 << 40  # between the seeds of two dimensions, so that no two tables start alike


class ShardedEmbeddings(nn.Module):
    """Tables over all ranks of a process group; every rank makes them and calls them alike.

    In training mode rows and gradients travel compressed, and ``backward`` of the loss updates the
    tables: there is no gradient of a table, and nothing for a dense optimizer to do. In evaluation
    mode rows travel exactly.

    >>> import torch
    >>> from laconic import ShardedEmbeddings, Table
    >>> tables = [Table("user", rows=1000, dim=16), Table("item", rows=500, dim=16)]
    >>> embeddings = ShardedEmbeddings(tables)
    >>> rows = embeddings.start({"user": torch.tensor([3, 14]), "item": torch.tensor([15, 9])})
    >>> loss = rows.wait().square().sum() / rows.global_samples
    >>> loss.backward()  # gradients travel to the owners of the rows, which update them
    >>> embeddings.optimizer.step()  # waits for that

    What travels is up to ``compression``: by default rows within 0.15 % of their range and
    gradients within 0.06 of their root mean square, right on average; ``Compression.exact()`` sends
    both as they are.

    ``optimizer`` is what updates the rows, an ``Optimizer`` of torch: schedulers take it, and
    ``optimizer.step()`` belongs into the loop. With ``fused=False`` gradients wait at their owners
    for that step. Then several ``backward`` passes accumulate, ``optimizer.zero_grad()`` forgets
    them, and ``optimizer.clip_grad_norm_`` counts them. Do not scale the loss with a
    ``GradScaler``: it does not know these rows, and their steps would be too long.

    ``copy.deepcopy`` makes embeddings of their own, with the same rows; every rank alike. Averages
    of parameters, as ``AveragedModel`` makes them, do not include rows.
    """

    def __init__(
        self,
        tables: Sequence[Table],
        compression: Compression | Policy | None = None,
        *,
        optimizer: RowOptimizer | None = None,
        fused: bool = True,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        placement: RowPlacement | None = None,
        world: World | LocalWorld | None = None,
    ) -> None:
        """``compression``: what travels, or whoever says it step by step; None: ``Compression()``.

        ``placement``: copies of hot rows and files of cold ones. ``world`` says who the ranks are;
        None: those of the default process group, or this one alone. All ranks of a ``LocalWorld``
        are in this process: batches are then those of all of them together, and results and bytes
        are those of as many processes, bit for bit.
        """
        super().__init__()
        if world is None:
            world = GroupWorld() if dist.is_initialized() and dist.get_world_size() > 1 else one_rank()
        worlds = [world.of(r) for r in range(world.ranks)] if isinstance(world, LocalWorld) else [world]
        self.tables = Layout(tuple(tables), worlds[0].ranks, worlds[0].rank).tables  # checked
        kind, placement = optimizer or RowwiseAdagrad(), placement or RowPlacement()
        settings = RowSettings(optimizer=kind, fused=fused, seed=seed, dtype=dtype, placement=placement)
        self._settings, self._world = settings, world
        self._policy = _policy_of(compression, [table.name for table in tables])
        self.engines: tuple[RowEngine, ...] = tuple(
            RowEngine(group, policy, replace(settings, seed=seed + k * _APART, placement=mine), worlds)
            for k, (group, policy, mine) in enumerate(_groups(self.tables, self._policy, placement))
        )
        """Those of one dimension each, in the order in which tables first have it."""
        self.optimizer = EmbeddingOptimizer(kind, self.engines, fused)

    def prefetch(self, batch: Any) -> None:
        """Send the ids of a later batch now, and fetch its rows when the update before it is done.

        The same objects must be started in the order in which they were prefetched. Weights of bags
        are read again at the start; ``Lookups.bags`` has copied those that it was given.
        """
        lookups = _lookups_or_error(batch, self.tables, len(self.engines))
        for engine in self.engines:
            engine.pipeline.prefetch(batch, lookups, _purpose(self))

    def discard_prefetched(self) -> None:
        """Forget batches that were prefetched and will not be started; every rank alike.

        Those that were started and had no ``backward`` are given up when a later one has it.
        """
        for engine in self.engines:
            engine.pipeline.discard()

    def start(self, batch: Any) -> Pending | JoinedPending:
        """Begin to fetch rows; compute something else before ``wait``.

        A batch that one rank cannot look up is refused on all: ``wait`` raises there.
        ``batch``: ``Lookups``, ids or bags by the names of tables, or a ``KeyedJaggedTensor``.
        """
        lookups, purpose = _lookups_or_error(batch, self.tables, len(self.engines)), _purpose(self)
        pending = [
            Pending(engine, engine.pipeline.start(batch, lookups, purpose), self.optimizer)
            for engine in self.engines
        ]
        return pending[0] if len(pending) == 1 else JoinedPending(pending, self.tables)

    def forward(self, batch: Any) -> Tensor:
        """Return pooled embeddings: B x T x D, or B x S where tables have several dimensions."""
        return self.start(batch).wait()

    def split(self, pooled: Tensor) -> dict[str, Tensor]:
        """Divide what ``wait`` or ``forward`` returned by table: B x D each."""
        if pooled.dim() == 3:
            return dict(zip((table.name for table in self.tables), pooled.unbind(1), strict=True))
        parts = torch.split(pooled, [table.dim for table in self.tables], dim=1)
        return dict(zip((table.name for table in self.tables), parts, strict=True))

    def report(self) -> TrafficReport:
        """Say what traveled since the embeddings were made: bytes before and after, seconds."""
        layout = self.engines[0].layout
        ledger = Ledger.joined([engine.ledger for engine in self.engines])
        rank = None if len(self.engines[0].ranks) > 1 else layout.rank
        return TrafficReport.from_ledger(ledger, rank=rank, ranks=layout.ranks)

    def synchronize(self) -> None:
        """Make copies of hot rows equal, if they may differ, before ``state_dict`` is called."""
        for engine in self.engines:
            engine.synchronize()

    def close(self) -> None:
        """End the threads and leave the process groups; they do not keep the process alive."""
        for engine in self.engines:
            engine.pipeline.close()

    def get_extra_state(self) -> dict[str, Any]:
        """Return this rank's rows, their state and the step for ``state_dict``."""
        states = [engine.state() for engine in self.engines]
        return states[0] if len(states) == 1 else {"dimensions": states}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take back what ``get_extra_state`` returned on this rank of as many.

        Gradients that wait for ``optimizer.step()`` stay, as torch keeps those of parameters.
        ``PlanError`` while a batch is prefetched.
        """
        states = state.get("dimensions", [state])
        if len(states) != len(self.engines):
            raise ConfigError(
                f"embeddings: expected rows of {len(self.engines)} dimensions, got {len(states)}; tables differ"
            )
        for engine, saved in zip(self.engines, states, strict=True):
            engine.load(saved)

    def extra_repr(self) -> str:
        """Return what ``repr`` shows."""
        layout, dims = self.engines[0].layout, sorted({table.dim for table in self.tables})
        rows, several = sum(table.rows for table in self.tables), len(self.engines[0].ranks)
        return (
            f"{len(self.tables)} tables, {rows} rows, dim={', '.join(map(str, dims))}, "
            f"dtype={self._settings.dtype}, optimizer={self.optimizer!r}, "
            f"{f'rank {layout.rank} of {layout.ranks}' if several == 1 else f'{several} ranks together'}"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return embeddings with the same rows, and with threads and process groups of their own.

        Every rank copies, as every rank makes them. What is prefetched is not copied.
        """
        saved = self.get_extra_state()  # waits for the last update
        other = type(self).__new__(type(self))
        memo[id(self)] = other
        how = {field.name: getattr(self._settings, field.name) for field in fields(self._settings)}
        ShardedEmbeddings.__init__(other, self.tables, deepcopy(self._policy, memo), world=self._world, **how)
        memo[id(self.optimizer)] = other.optimizer
        other.set_extra_state(saved)
        other.optimizer.load_state_dict(self.optimizer.state_dict())
        return other.train(self.training)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Refuse to convert: the exchange works on the memory that it was given."""
        rows = self.engines[0].weight_RD
        converted = fn(torch.empty(0, dtype=rows.dtype))  # not a view: fn may move its memory
        if converted.dtype != rows.dtype or converted.device != rows.device:
            raise ConfigError(
                f"embeddings: tables are {rows.dtype} on the CPU and stay so, got {converted.dtype} on "
                f"{converted.device}; choose dtype when you make them, convert the rest of the model by itself"
            )
        return self


class _SomeTables:
    """A policy as it is for some of its tables."""

    def __init__(self, policy: Policy, chosen: Sequence[int], tables: int) -> None:
        """``tables``: number of all tables that the policy has plans for."""
        self._policy, self._chosen, self._tables = policy, chosen, tables
        self._made: tuple[ExchangePlan, ExchangePlan] | None = None

    def plan_for(self, step: int) -> ExchangePlan:
        """Return the plan of a step: the same object until something changes."""
        plan = self._policy.plan_for(step)
        if self._made is None or self._made[0] is not plan:
            check_plan(plan, self._tables)
            tables = tuple(plan.tables[t] for t in self._chosen)
            self._made = (plan, replace(plan, tables=tables))
        return self._made[1]


def _purpose(embeddings: nn.Module) -> Purpose:
    if not embeddings.training:
        return Purpose.EVALUATE
    return Purpose.TRAIN if torch.is_grad_enabled() else Purpose.SCORE


def _lookups_or_error(batch: Any, tables: Sequence[Table], groups: int) -> Lookups | ConfigError:
    """Return lookups, or why there are none: the exchange tells all ranks, so that none waits."""
    try:
        return _lookups(batch, tables, groups)
    except ConfigError as error:
        return error


def _lookups(batch: Any, tables: Sequence[Table], groups: int) -> Lookups:
    """Return a batch as lookups; with names where each group of tables must find its own."""
    lookups = Lookups.of(batch)
    if groups == 1 or lookups.names is not None:
        return lookups
    if lookups.tables != len(tables):
        raise ConfigError(f"lookups: expected {len(tables)} tables, got {lookups.tables}")
    return replace(lookups, names=tuple(table.name for table in tables))


def _policy_of(compression: object, names: Sequence[str]) -> Policy:
    if compression is None or isinstance(compression, Compression):
        return (compression or Compression()).policy(names)
    if hasattr(compression, "plan_for") and not isinstance(compression, type):
        return cast(Policy, compression)
    shown = f"the class {compression.__name__}" if isinstance(compression, type) else repr(compression)
    raise ConfigError(
        f"embeddings.compression: expected a Compression, got {shown}; write laconic.Compression(...)"
    )


def _groups(
    tables: Sequence[Table], policy: Policy, placement: RowPlacement
) -> Iterator[tuple[Sequence[Table], Policy, RowPlacement]]:
    """Divide tables by dimension.

    The first group also gets what the placement says of tables that do not exist, and refuses it.
    """
    dims = list(dict.fromkeys(table.dim for table in tables))
    if len(dims) == 1:
        yield tables, policy, placement
        return
    for dim in dims:
        chosen = [t for t, table in enumerate(tables) if table.dim == dim]
        others = {table.name for table in tables if table.dim != dim}
        if dim != dims[0]:
            others |= {*placement.hot, *placement.warm} - {tables[t].name for t in chosen}
        yield [tables[t] for t in chosen], _SomeTables(policy, chosen, len(tables)), placement.without(others)
