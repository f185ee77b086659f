"""What a worker is asked to time, and what it answers: values that travel as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from laconic.config import Settings
from laconic.data import DataSettings
from laconic.train.settings import ModelSettings

__all__ = ["Codec", "Contender", "Placed", "PlacedSteps", "Sends"]

Codec = Literal["plain", "exact", "coded"]


class Sends(Settings):
    """What travels as what; one of ``ExchangeSettings.kind`` and ``DenseSettings.send`` each."""

    rows: Literal["exact", "lossless", "bounded"] = "exact"
    """Rows and their gradients."""

    dense: Literal["exact", "lossless", "levels"] = "exact"
    """Dense gradients."""

    @property
    def name(self) -> str:
        """Different for each."""
        return f"{self.rows} {self.dense}"


class Contender(Settings):
    """One way to place tables and to send what they need."""

    placement: str
    """``alone``: a rank's batch on that rank, nothing sent; ``plain``: tables whole on ranks, pooled, as DLRM does."""

    codec: Codec
    """``plain``: float32, raw ids, torch's all-to-all; ``exact``: the same bits, coded where that pays, and coded ids;
    ``coded``: Laconic's defaults."""

    sends: Sends = Sends()
    """What the codec means."""

    plan: Path | None = None
    """Plan that says where tables are."""

    @property
    def name(self) -> str:
        """Different for each."""
        return f"{self.placement} {self.codec} {self.sends.name}"


class PlacedSteps(Settings):
    """Time steps of contenders, in turns."""

    data: DataSettings
    batch: int
    """Samples of a rank in a step."""
    model: ModelSettings
    contenders: tuple[Contender, ...]
    """What fills links for long disturbs the next one even after a step that is not counted: one that sends nothing should be first, plain last."""
    rounds: int
    steps: int
    """Of each contender in each round; one more before them is not counted."""
    races: tuple[tuple[str, ...], ...] = ()
    """Names of contenders that are compared with one another, the planner's first."""
    further_rounds: int = 0
    """Of those that are first in their race, or nearly so: of several that are alike, one is lucky in a few rounds."""


class Placed(Settings):
    """Figures of one contender, averaged over ranks where they differ."""

    name: str
    turn_ms: tuple[float, ...]
    """Mean step of each turn, in which all ranks do the same steps from the same moment on."""
    bytes: dict[str, float]
    """Sent per step and rank, by direction."""
    before: dict[str, float]
    """The same uncompressed."""
    codec_ms: dict[str, float]
    """Of encoding and decoding rows and gradients, per step."""
    dense_bytes: float
    """Of dense gradients, as they are: not what a rank sends of them."""
    dense_sent: float
    """Sent per step and rank."""
    dense_work_ms: float
    """That a rank computed for them in a step; 0 where gloo sums them as they are."""
