"""Packets made by hand, from docs/formats/aggregation.md and not from the code under test."""

from __future__ import annotations

import struct
from typing import NamedTuple

HEADER = struct.Struct("<BBBBIQII")
SUM, OR = 1, 2
RESULT, PENDING, OVERFLOW, OUT_OF_STEP, REPEATED = 1, 2, 4, 8, 16
VALUES = 362


def contribution(values, *, job, worker, round_number=0, block=0, operation=SUM):
    header = HEADER.pack(0x4C, 1, operation, 0, 1 << worker, job, round_number, block)
    return header + struct.pack(f"<{len(values)}i", *values)


class Answer(NamedTuple):
    operation: int
    flags: int
    workers: int
    round_number: int
    block: int
    values: tuple[int, ...]


def read(datagram):
    magic, version, operation, flags, workers, _, round_number, block = HEADER.unpack(datagram[: HEADER.size])
    assert (magic, version) == (0x4C, 1)
    values = struct.unpack(f"<{len(datagram[HEADER.size :]) // 4}i", datagram[HEADER.size :])
    return Answer(operation, flags, workers, round_number, block, values)
