"""Rate of a link, and the token bucket that keeps to it.

A bucket of ``burst_bytes`` fills at the rate; a packet leaves when the bucket holds as many tokens as it
has bytes. The bucket is what a link may send at once after a pause, so it is small -- one millisecond of
the rate -- or a short message would see no limit at all. It cannot be smaller than what the kernel hands
over in one piece, therefore senders are told to make pieces of at most ``piece_bytes``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from laconic.errors import ConfigError

_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_LEAST, _MOST = 64e3, 32e9  # the kernel counts bytes per second in 32 bits
_PACKET_BYTES = 1514
_BURST_S = 1e-3
_QUEUE_S = 50e-3
_LEAST_QUEUE_BYTES = 128 * 1024
_MOST_QUEUE_BYTES = 64 * 1024 * 1024
_LARGEST_PIECE_BYTES = 65536


@dataclass(frozen=True, slots=True)
class Rate:
    """Bits per second of a link, in each direction."""

    bits_per_s: float

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Read ``'200mbit'``, ``'1.5gbit'`` or ``'800kbit'``."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(kbit|mbit|gbit)", text.strip().lower())
        if match is None:
            raise ConfigError(
                f"lab: rate: expected a number and kbit, mbit or gbit, got {text!r}; write {_suggestion(text)!r}"
            )
        rate = cls(float(match[1]) * _UNITS[match[2]])
        if not _LEAST <= rate.bits_per_s <= _MOST:
            raise ConfigError(
                f"lab: rate: expected {cls(_LEAST)} to {cls(_MOST)}, got {text!r}; leave the rate out for no limit"
            )
        return rate

    @property
    def burst_bytes(self) -> int:
        """Bytes that may leave at once: one millisecond, or a few packets."""
        return max(int(self.bits_per_s / 8 * _BURST_S), 4 * _PACKET_BYTES)

    @property
    def queue_bytes(self) -> int:
        """Bytes that may wait before packets are dropped: 50 milliseconds, within reason."""
        waiting = int(self.bits_per_s / 8 * _QUEUE_S)
        return min(max(waiting, _LEAST_QUEUE_BYTES), _MOST_QUEUE_BYTES) + self.burst_bytes

    @property
    def piece_bytes(self) -> int:
        """Largest piece that a sender hands to the link: half a burst, as packets are counted with headers."""
        return min(max(self.burst_bytes // 2, 2 * _PACKET_BYTES), _LARGEST_PIECE_BYTES)

    def __str__(self) -> str:
        unit = next((u for u in ("gbit", "mbit") if self.bits_per_s >= _UNITS[u]), "kbit")
        return f"{self.bits_per_s / _UNITS[unit]:.12g}{unit}"


def _suggestion(text: str) -> str:
    number = re.match(r"\s*(\d+(?:\.\d+)?)", text)
    return f"{number[1]}mbit" if number else "200mbit"
