"""What torch asks of a module whose rows are neither parameters nor buffers: its state, copies, conversions, ``repr``.

Shape legend: ``D`` dimensions, ``R`` rows of this rank.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.exchange.exchange_plan import expect_policy
from laconic.exchange.tables.shards import TableShards
from laconic.nn.pipelined import PipelinedEmbeddings

__all__ = ["RowModule", "check_settings"]


class RowModule(PipelinedEmbeddings):
    """One rank's rows, as torch's machinery finds them."""

    @property
    def _shards(self) -> TableShards:
        return self._ranks[0].shards

    @property
    def _places(self) -> str:
        """Text that stands for hot and warm rows, which have places of their own."""
        return self._ranks[0].places

    @property
    def weight_RD(self) -> Tensor:
        """Rows of this rank. Neither parameter nor buffer: DDP would make all ranks' shards equal."""
        return self._shards.weight_RD

    @property
    def state_R(self) -> Tensor | None:
        """Optimizer state of these rows, if there is any."""
        return self._shards.state_R

    def get_extra_state(self) -> dict[str, Any]:
        """Return this rank's shards, optimizer state and step for ``state_dict``; every rank has its own."""
        self._settle_copies()
        rank, ranks = self.layout.rank, self.layout.ranks
        rows = {"weight": self.weight_RD, "state": self.state_R, "placed": self._places}
        return {"rank": rank, "ranks": ranks, "step": self.step, **rows}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take back what ``get_extra_state`` returned on this rank of as many."""
        kind = (self.weight_RD.shape, self.state_R is None, self._places)
        if (state["weight"].shape, state["state"] is None, state.get("placed", self._places)) != kind:
            raise ConfigError(
                f"embeddings: expected a shard of shape {tuple(self.weight_RD.shape)} with the same optimizer, got "
                f"{tuple(state['weight'].shape)}; tables, ranks, optimizer, hot or warm rows differ"
            )
        mine = (self.layout.rank, self.layout.ranks)
        saved = (state.get("rank", mine[0]), state.get("ranks", mine[1]))  # older states say nothing of it
        if saved != mine and not self.layout.replicated_T.all():
            raise ConfigError(
                f"embeddings: expected the shard of rank {mine[0]} of {mine[1]}, got that of rank {saved[0]} of "
                f"{saved[1]}; save state_dict() on every rank, in a file of its own, and load it there"
            )
        self._settle()
        self.step = state["step"]
        self.weight_RD.copy_(state["weight"])
        if self.state_R is not None:
            self.state_R.copy_(state["state"])

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return embeddings with the same rows, and with memory, threads and process groups of their own.

        Every rank copies, as every rank makes them. What is prefetched is not copied.
        """
        saved = self.get_extra_state()  # waits for the last update
        other = type(self).__new__(type(self))
        memo[id(self)] = other
        placed, policy = replace(self._placed, optimizer=self.optimizer), deepcopy(self.policy, memo)
        PipelinedEmbeddings.__init__(other, placed, policy, 0, self._worlds)
        other.set_extra_state(saved)
        return other.train(self.training)

    def extra_repr(self) -> str:
        """Return what ``repr`` shows."""
        tables, layout = self.layout.tables, self.layout
        rows = sum(table.rows for table in tables)
        return (
            f"{len(tables)} tables, {rows} rows, dim={self.dim}, dtype={self.weight_RD.dtype}, "
            f"optimizer={self.optimizer!r}, rank {layout.rank} of {layout.ranks}"
        )

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Refuse to convert: the exchange works on the memory that it was given."""
        converted = fn(self.weight_RD[:0])
        if converted.dtype != self.weight_RD.dtype or converted.device != self.weight_RD.device:
            raise ConfigError(
                f"embeddings: tables are {self.weight_RD.dtype} on the CPU and stay so, got {converted.dtype} on "
                f"{converted.device}; choose dtype when you make them, convert the rest of the model by itself"
            )
        return self


def check_settings(dim: int, dtype: torch.dtype, policy: object, hot_every: int) -> None:
    """Refuse what embeddings cannot be made with."""
    if dim < 1:
        raise ConfigError(f"embeddings.dim: expected at least 1, got {dim!r}")
    if dtype not in (torch.float32, torch.float64):
        raise ConfigError(f"embeddings.dtype: expected torch.float32 or torch.float64, got {dtype}")
    expect_policy("embeddings.policy", policy)
    if hot_every < 1:
        raise ConfigError(f"embeddings.hot_every: expected at least 1, got {hot_every!r}")
