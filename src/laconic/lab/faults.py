"""What a link does wrong, by a seeded stage in the switch: packets lost, doubled, overtaken.

::

    host0: eth0 ==== cable0 :stage: plug0 ---- port0 :bridge:
                        `-- lane0 --tbf-- exit0 --'

Every packet of a host, in each direction, passes an eBPF program between its link and its port. The dice are a
hash of the seed, the direction and the number of the packet there. A packet that others are to overtake
takes the slow lane, behind a copy of itself that uses the lane's tokens up and goes no further.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from laconic.bpf import Program
from laconic.errors import ConfigError

__all__ = ["Faults", "Stage", "Way"]

_SOURCE = Path(__file__).with_name("faults.bpf.c")
_WAY = struct.Struct("=IIIIQ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Faults:
    """Share of packets, in each direction of each link, that something happens to."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    """Packets that are held back for about four others; above some 5 % of a full link they are also lost."""
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
class Way:
    """One direction of a link: interface where packets enter the stage, where they leave, and the slow lane."""

    entry: int
    target: int
    lane: int
    lane_exit: int


class Stage:
    """The program, on all ways through the switch; it goes with the process that made it."""

    def __init__(self, faults: Faults, ways: Sequence[Way]) -> None:
        shares = {"LOSS": faults.loss, "DUPLICATION": faults.duplication, "REORDERING": faults.reordering}
        definitions = {name: round(share * 2**32) for name, share in shares.items()}
        self._program = Program(_SOURCE, {**definitions, "SEED": f"{faults.seed}ULL", "WAYS": len(ways)})
        for number, way in enumerate(ways):
            value = _WAY.pack(way.target, way.lane, number, 0, 0)
            self._program.update("ways", struct.pack("=I", way.entry), value)
            self._program.attach_tc("disturb", way.entry)
            self._program.attach_tc("merge", way.lane_exit)
