"""What carries bytes between ranks, and what a codec costs one of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from laconic.errors import ConfigError

__all__ = ["CodecCost", "Link"]


@dataclass(frozen=True, slots=True)
class Link:
    """What carries bytes from one rank to all others."""

    latency_s: float
    """Of a message without bytes."""

    bytes_per_s: float
    """That leave the rank, for all others together."""

    def __post_init__(self) -> None:
        if not (0 <= self.latency_s < math.inf and 0 < self.bytes_per_s < math.inf):
            raise ConfigError(
                f"link: expected a latency >= 0 and a bandwidth > 0, both finite, got {self.latency_s!r} s "
                f"and {self.bytes_per_s!r} bytes/s; measure it again"
            )


@dataclass(frozen=True, slots=True)
class CodecCost:
    """What one rank spends in a step on one table in one direction."""

    encode_s: float
    decode_s: float
    bytes_sent: float

    def __post_init__(self) -> None:
        if not all(0 <= number < math.inf for number in (self.encode_s, self.decode_s, self.bytes_sent)):
            raise ConfigError(
                f"codec cost: expected finite numbers >= 0, got {self.encode_s!r} s, {self.decode_s!r} s "
                f"and {self.bytes_sent!r} bytes; measure it again"
            )

    @property
    def cpu_s(self) -> float:
        """Encoding and decoding."""
        return self.encode_s + self.decode_s
