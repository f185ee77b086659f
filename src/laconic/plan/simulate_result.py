"""The result of ``laconic simulate``, as a JSON file and as classes.

::

    {
      "kind": "simulate",
      "title": "Step on 8 to 16 ranks",
      "facts": [["rows", "187,767,399"], ["dimensions", "64"]],
      "methods": [["dedup", "each distinct row once"], ["dense", "dense gradients compressed"]],
      "cells": [
        {"ranks": 8, "gbps": 1, "off_ms": 348.7, "best_ms": 62.3, "best": "dedup + dense",
         "gains": [1.03, 2.62], "alone": [1.2, 1.3], "wire_ms": 31.1, "codec_ms": 11.4,
         "bytes": {"ids": 28000, "rows": 880000, "dense": 2900000, "hot": 0}, "hot_rows": 0}
      ],
      "stops": [{"ranks": 8, "gbps": [1.0, null]}],
      "needs": [{"ranks": 8, "announced_bytes": 1900, "descriptors": 27,
                 "least_buffer_bytes": 4587520, "most_buffer_bytes": 36700160}]
    }

``gains`` has one number for each method: the best step without it / the best step with it.
``alone`` has the step with all methods off / the step with this one alone. ``stops`` has the
bandwidth from which on a method does not pay any more: null if it still pays at the largest, 0 if
it never pays. A method may pay only from some bandwidth on: ``gains`` show it. Wire, codecs and
bytes are those of the best combination, for one rank and step. ``needs`` has what a rank announces
in a step, which is counted with ``ids``, at the lowest bandwidth, and what it needs of its machine
(``plan.rank_needs``). Files of before have no ``needs``.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from laconic.config import Bytes, Count, Maybe, Settings, Text

__all__ = ["SentBytes", "SimulateResult", "SimulatedCell", "SimulatedNeeds", "Stops"]

Positive = Annotated[float, Field(gt=0)]


class SentBytes(Settings):
    """Bytes that a rank sends in a step."""

    ids: Bytes
    """Coded ids and all announcements."""
    rows: Bytes
    dense: Bytes
    hot: Bytes


class SimulatedCell(Settings):
    """One number of ranks at one bandwidth."""

    ranks: Count
    gbps: Positive
    off_ms: Positive
    """Milliseconds of a step with all methods off."""
    best_ms: Positive
    best: Text
    """The methods that are on in the best combination."""
    gains: tuple[Positive, ...]
    alone: tuple[Positive, ...]
    wire_ms: float
    codec_ms: float
    bytes: SentBytes
    hot_rows: Count


class Stops(Settings):
    """Bandwidths at which methods stop paying, for one number of ranks."""

    ranks: Count
    gbps: tuple[Maybe, ...]


class SimulatedNeeds(Settings):
    """What a rank announces, and needs of its machine, for one number of ranks."""

    ranks: Count
    announced_bytes: Bytes
    descriptors: Count
    least_buffer_bytes: Count
    most_buffer_bytes: Count


class SimulateResult(Settings):
    """A result file."""

    kind: Literal["simulate"] = "simulate"
    title: Text
    facts: tuple[tuple[str, str], ...]
    methods: tuple[tuple[Text, Text], ...] = Field(min_length=1)
    """Names of methods, and what they do."""
    cells: tuple[SimulatedCell, ...] = Field(min_length=1)
    stops: tuple[Stops, ...]
    needs: tuple[SimulatedNeeds, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for cell in self.cells:
            if {len(cell.gains), len(cell.alone)} != {len(self.methods)}:
                raise ValueError(
                    f"cells: expected {len(self.methods)} gains, got {len(cell.gains)} and {len(cell.alone)} alone"
                )
        if any(len(stop.gbps) != len(self.methods) for stop in self.stops):
            raise ValueError(f"stops: expected {len(self.methods)} bandwidths in each")
        if len({(cell.ranks, cell.gbps) for cell in self.cells}) != len(self.ranks) * len(self.gbps):
            raise ValueError("cells: expected one for each number of ranks and each bandwidth")
        return self

    @property
    def ranks(self) -> list[int]:
        """Numbers of ranks, rising."""
        return sorted({cell.ranks for cell in self.cells})

    @property
    def gbps(self) -> list[float]:
        """Bandwidths, rising."""
        return sorted({cell.gbps for cell in self.cells})

    def cell(self, ranks: int, gbps: float) -> SimulatedCell:
        """Find a cell."""
        return next(cell for cell in self.cells if (cell.ranks, cell.gbps) == (ranks, gbps))
