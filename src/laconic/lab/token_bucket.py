"""The token bucket that keeps a link of a rate-limited lab to its bandwidth.

A bucket of ``burst_bytes`` fills at the link's bandwidth. A packet leaves when the bucket holds as
many tokens as the packet has bytes. After a pause the link may send a whole bucket at once. So the
bucket is small, one millisecond of the bandwidth: otherwise a short message would see no limit at
all. It cannot be smaller than what the kernel hands over in one piece, therefore senders are told
to make pieces of at most ``piece_bytes``.
"""

from __future__ import annotations

from dataclasses import dataclass

from laconic.errors import ConfigError

__all__ = ["TokenBucket", "link_limit"]

_LEAST_MBPS, _MOST_MBPS = 0.064, 32_000  # the kernel counts bytes per second in 32 bits
_PACKET_BYTES = 1514
_BURST_S = 1e-3
_QUEUE_S = 50e-3
_LEAST_QUEUE_BYTES = 128 * 1024
_MOST_QUEUE_BYTES = 64 * 1024 * 1024
_LARGEST_PIECE_BYTES = 65536


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """The limit of one direction of a link."""

    mbps: float
    """Bandwidth in Mbit/s."""

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth in bytes per second."""
        return self.mbps * 1e6 / 8

    @property
    def burst_bytes(self) -> int:
        """Bytes that may leave at once: one millisecond, or a few packets."""
        return max(int(self.bytes_per_s * _BURST_S), 4 * _PACKET_BYTES)

    @property
    def queue_bytes(self) -> int:
        """Bytes that may wait before packets are dropped: 50 milliseconds, within limits."""
        waiting = int(self.bytes_per_s * _QUEUE_S)
        return min(max(waiting, _LEAST_QUEUE_BYTES), _MOST_QUEUE_BYTES) + self.burst_bytes

    @property
    def piece_bytes(self) -> int:
        """Largest piece that a sender hands to the link: half a burst, for headers count too."""
        return min(max(self.burst_bytes // 2, 2 * _PACKET_BYTES), _LARGEST_PIECE_BYTES)


def link_limit(mbps: float | None) -> TokenBucket | None:
    """Return the limit of a link; ConfigError for what the kernel cannot keep. None: no limit."""
    if mbps is None or _LEAST_MBPS <= mbps <= _MOST_MBPS:
        return None if mbps is None else TokenBucket(mbps)
    raise ConfigError(
        f"lab: mbps: expected {_LEAST_MBPS} to {_MOST_MBPS} Mbit/s, got {mbps!r}; leave it out for no limit"
    )
