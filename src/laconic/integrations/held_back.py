"""What thresholding has not sent yet, by the names of parameters: DDP makes other buckets, and memory moves with its parameter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from laconic.errors import ConfigError
from laconic.reduce import LayerMemory

__all__ = ["HeldBack"]


class HeldBack:
    """Memory and thresholds of one rank's parameters."""

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        self._memory: dict[str, NDArray[Any]] = {}
        self._thresholds: dict[str, tuple[float, int]] = {}
        self._parts: list[LayerMemory] = []  # of the buckets that there are now

    def lay_out(self, layers: Sequence[tuple[str, int]]) -> LayerMemory:
        """Bring together what parameters of these names and sizes hold back, in one array that they use from now on."""
        self._thresholds = self._current_thresholds()
        memory = LayerMemory([size for _, size in layers], [name for name, _ in layers])
        for layer, name in enumerate(memory.names):
            place = memory.values[memory.bounds[layer] : memory.bounds[layer + 1]]
            if name in self._memory:
                place[:] = self._memory[name].reshape(-1)
            self._memory[name] = place
            memory.thresholds[layer], memory.ages[layer] = self._thresholds.get(name, (0.0, 0))
        self._parts = [part for part in self._parts if not set(part.names) & set(memory.names)]
        self._parts += [memory] if layers else []
        return memory

    def state_dict(self) -> dict[str, Any]:
        """Return a copy, and whose it is."""
        return {
            "rank": self._rank,
            "ranks": self._ranks,
            "memory": {name: torch.from_numpy(values.copy()) for name, values in self._memory.items()},
            "thresholds": self._current_thresholds(),
        }

    def load_state_dict(self, state: dict[str, Any], known: Collection[str]) -> None:
        """Take back what the same rank of as many saved; a state from before ranks were in it is anybody's."""
        mine = (self._rank, self._ranks)
        saved = (state.get("rank", self._rank), state.get("ranks", self._ranks))
        if state["memory"] and saved != mine:
            raise ConfigError(
                f"register_ddp: expected what rank {mine[0]} of {mine[1]} held back, got that of rank {saved[0]} of "
                f"{saved[1]}; save compressor.state_dict() on every rank, in a file of its own, and load it there"
            )
        for name, values in state["memory"].items():
            if name not in known:
                raise ConfigError(f"register_ddp: the saved memory is of {name!r}, which this model has not")
            self._memory[name] = values.numpy().copy()
        self._thresholds = dict(state["thresholds"])
        self._parts.clear()

    def _current_thresholds(self) -> dict[str, tuple[float, int]]:
        found = dict(self._thresholds)
        for part in self._parts:
            now = zip(part.thresholds.tolist(), part.ages.tolist(), strict=True)
            found.update(zip(part.names, now, strict=True))
        return found
