"""Links between ranks, the cost of a codec, and the formulas of messages, sums and steps.

Each formula is stated only here. Whoever sends, plans or simulates calls it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from laconic.errors import ConfigError

__all__ = [
    "DENSE_SHARE",
    "CodecCost",
    "Link",
    "head_bytes",
    "message_bytes",
    "owners_sum",
    "piece_heads_bytes",
    "ring_bytes",
    "step_s",
    "varint_bytes",
]

_HEAD_BYTES = 20.0
"""Bytes of a head's size, turn, plan digest, samples and checksum: 22, and 18 where counts travel,
which need no checksum. A step has two heads of rows and one of ids."""

_BASE_BYTES = 2.0
"""Bytes of what levels of a piece begin with."""

DENSE_SHARE = {"bf16": 16 / 32, "levels": 6 / 32, "lossless": 27 / 32}
"""Share of a dense gradient's bytes that is sent, by ``compression.dense``. Other methods send
all bytes, or a share that cannot be foretold."""


@dataclass(frozen=True, slots=True)
class Link:
    """The connection from one rank to all others."""

    latency_s: float
    """Seconds that a message without bytes takes."""

    bytes_per_s: float
    """Bytes that leave the rank in a second, for all others together."""

    def __post_init__(self) -> None:
        if not (0 <= self.latency_s < math.inf and 0 < self.bytes_per_s < math.inf):
            raise ConfigError(
                f"link: expected a latency >= 0 and a bandwidth > 0, both finite, got {self.latency_s!r} s "
                f"and {self.bytes_per_s!r} bytes/s; measure it again"
            )


@dataclass(frozen=True, slots=True)
class CodecCost:
    """Time and bytes that one rank spends in a step on one table in one direction."""

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
        """Seconds of encoding and decoding."""
        return self.encode_s + self.decode_s


def varint_bytes(value: float) -> int:
    """Return the bytes of a number: seven bits of it are in each."""
    return max(math.ceil(math.log2(value + 1) / 7), 1)


def head_bytes(numbers: float, varints: float) -> float:
    """Return about the bytes of one head (``docs/formats/head.md``).

    It has a bit for each of its ``numbers``, and ``varints`` bytes for those that are not 0.
    """
    return _HEAD_BYTES + numbers / 8 + varints


def message_bytes(blocks: int, ranks: int) -> float:
    """Return about the bytes of heads that leave a rank, if blocks have 128 to 16,383 bytes.

    Ids have two blocks a table, for the size and the number of its ids. How many rows or gradients
    follow from them is known.
    """
    return head_bytes(blocks, 2 * blocks) * (ranks - 1)


def piece_heads_bytes(ranks: int, piece_bytes: float) -> float:
    """Return about the bytes of heads that leave a rank for one sum of coded values.

    A rank tells each owner the size and base of its piece, and owners tell all about its sum.
    """
    return 2 * head_bytes(2, varint_bytes(piece_bytes) + _BASE_BYTES) * (ranks - 1)


def ring_bytes(nbytes: float, ranks: int) -> float:
    """Return bytes that each rank sends, and receives, in a ring all-reduce of ``nbytes``."""
    return 2 * (ranks - 1) * nbytes / ranks


def owners_sum(ranks: int) -> bool:
    """Return whether owners sum gradients of replicated rows, and send everyone the sums.

    ``rows`` is the number of distinct rows of each rank, ``union`` that of all ranks together, at
    most ``N rows``. A rank sends ::

        everyone to everyone   (N - 1) rows
        by owners              (N - 1) / N (rows + union)

    So owners never send more than ``1 + 1 / N`` times as much, and an ``N / 2``-th where ranks look
    up the same rows. On two ranks they never send less.
    """
    return ranks > 2


def step_s(busy_s: Any, wire_s: Any, overlap_s: float) -> Any:
    """Return seconds of a step: computation, and transfers that computation does not hide."""
    return busy_s + np.maximum(wire_s - overlap_s, 0.0)
