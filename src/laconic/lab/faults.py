"""Faults of links: a seeded fault stage in the switch loses, doubles and reorders packets.

::

    host0: eth0 ==== cable0 :stage: plug0 ---- port0 :bridge:
                        `-- lane0 --tbf-- exit0 --'

Every packet of a host, in each direction, passes an eBPF program between its link and its port.
What happens to it depends on a hash of the seed, the direction and the packet's number there. A
packet that others are to overtake takes the slow lane, behind a copy of itself that uses the lane's
tokens up and goes no further.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from laconic.bpf import Program
from laconic.errors import ConfigError

__all__ = ["Direction", "FaultStage", "Faults"]

_SOURCE = Path(__file__).with_name("faults.bpf.c")
_DIRECTION = struct.Struct("=IIIIQ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Faults:
    """Shares of packets that are lost, doubled or reordered, in each direction of each link."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    """Share of packets that about four others overtake; above 5 % of a full link some are lost."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("loss", "duplication", "reordering"):
            share = getattr(self, name)
            if not 0.0 <= share <= 0.5:
                raise ConfigError(f"lab: {name}: expected 0 to 0.5, got {share!r}")
        if not 0 <= self.seed < 1 << 64:
            raise ConfigError(f"lab: seed: expected a number of 64 bits, got {self.seed!r}")

    @property
    def any(self) -> bool:
        """Whether anything happens at all."""
        return self.loss + self.duplication + self.reordering > 0


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of a link, by the indices of its interfaces."""

    entry: int
    """Interface at which packets enter the stage."""
    target: int
    """Interface at which packets leave the stage."""
    lane: int
    """Interface at which the slow lane begins."""
    lane_exit: int
    """Interface at which the slow lane ends."""


class FaultStage:
    """The program on all directions of all links; it goes with the process that made it."""

    def __init__(self, faults: Faults, directions: Sequence[Direction]) -> None:
        shares = {"LOSS": faults.loss, "DUPLICATION": faults.duplication, "REORDERING": faults.reordering}
        definitions = {name: round(share * 2**32) for name, share in shares.items()}
        self._program = Program(
            _SOURCE, {**definitions, "SEED": f"{faults.seed}ULL", "WAYS": len(directions)}
        )
        for number, direction in enumerate(directions):
            value = _DIRECTION.pack(direction.target, direction.lane, number, 0, 0)
            self._program.update("ways", struct.pack("=I", direction.entry), value)
            self._program.attach_tc("disturb", direction.entry)
            self._program.attach_tc("merge", direction.lane_exit)
