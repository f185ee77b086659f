"""What two workers say and are answered, packet by packet; run on the loopback and on a lab's host alike."""

from __future__ import annotations

import socket

from tests.reduce.network.packets import (
    HEADER,
    OR,
    OUT_OF_STEP,
    OVERFLOW,
    PENDING,
    REPEATED,
    RESULT,
    SUM,
    VALUES,
    contribution,
    read,
)

MOST = 2**31 - 1


def _with(job, at, value):
    packet = bytearray(contribution([1, 2], job=job, worker=0))
    packet[at] = value
    return bytes(packet)


MALFORMED = {
    "empty": lambda job: b"",
    "shorter than a header": lambda job: contribution([], job=job, worker=0)[:-1],
    "no values": lambda job: contribution([], job=job, worker=0),
    "part of a value": lambda job: contribution([1], job=job, worker=0)[:-1],
    "one value too many": lambda job: contribution([1] * (VALUES + 1), job=job, worker=0),
    "another magic": lambda job: _with(job, 0, 0x4D),
    "another version": lambda job: _with(job, 1, 2),
    "no operation": lambda job: _with(job, 2, 0),
    "unknown operation": lambda job: _with(job, 2, 3),
    "flags of an answer": lambda job: _with(job, 3, RESULT),
    "flags of a repeated answer": lambda job: _with(job, 3, RESULT | REPEATED),
    "no worker": lambda job: _with(job, 4, 0),
    "two workers": lambda job: _with(job, 4, 3),
    "a worker that the job does not have": lambda job: _with(job, 4, 4),
    "the last worker of 32": lambda job: contribution([1], job=job, worker=31),
}
"""Packets for a job of two workers."""

BOTH = 3
EXPECTED = [
    (0, SUM, RESULT, BOTH, 0, 0, (11, -22)),
    (1, SUM, RESULT, BOTH, 0, 0, (11, -22)),
    # worker 1 lost the result and asks again: told to it alone
    (1, SUM, RESULT | REPEATED, BOTH, 0, 0, (11, -22)),
    # a repeated contribution to a block that waits: who is in, no values
    (0, SUM, PENDING | REPEATED, 1, 1, 1, ()),
    (0, OR, RESULT, BOTH, 2, 2, (-1 & ~8, 7)),
    (1, OR, RESULT, BOTH, 2, 2, (-1 & ~8, 7)),
    (0, SUM, RESULT | OVERFLOW, BOTH, 3, 3, (-(2**31),)),
    (1, SUM, RESULT | OVERFLOW, BOTH, 3, 3, (-(2**31),)),
    # another length, then another round, for one block; the first worker is told when it asks
    (1, SUM, PENDING | REPEATED | OUT_OF_STEP, 1, 4, 4, ()),
    (1, SUM, PENDING | REPEATED | OUT_OF_STEP, 1, 5, 4, ()),
    (0, SUM, PENDING | REPEATED | OUT_OF_STEP, 1, 4, 4, ()),
]
"""Who was told, and operation, flags, workers, round, block and values of the answer."""


def converse(address, job):
    """Speak for both workers of a new job and return the answers, those to worker 0 first where both get one."""
    answers = []
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as second,
    ):
        ends = (first, second)
        for end in ends:
            end.connect(address)
            end.settimeout(20)

        def say(worker, values, round_number, block, operation=SUM, told=()):
            packet = contribution(
                values, job=job, worker=worker, round_number=round_number, block=block, operation=operation
            )
            ends[worker].send(packet)
            for listener in told:
                answers.append((listener, *read(ends[listener].recv(2000))))

        say(0, [1, -2], 0, 0)
        say(1, [10, -20], 0, 0, told=(0, 1))
        say(1, [10, -20], 0, 0, told=(1,))
        say(0, [5], 1, 1)
        say(0, [5], 1, 1, told=(0,))
        say(0, [-16, 3], 2, 2, OR)
        say(1, [15 & ~8, 4], 2, 2, OR, told=(0, 1))
        say(0, [MOST], 3, 3)
        say(1, [1], 3, 3, told=(0, 1))
        # too far ahead, before the first, and far away: all dropped as stale
        for block in (1024, 2**32 - 1, 513):
            say(0, [1], 4, block)
        say(0, [1, 1], 4, 4)
        say(1, [1], 4, 4, told=(1,))
        say(1, [1, 1], 5, 4, told=(1,))
        say(0, [1, 1], 4, 4, told=(0,))
    return answers


def throw_malformed(address, job):
    """Send every malformed packet, and count them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.connect(address)
        for make in MALFORMED.values():
            end.send(make(job))
        end.send(HEADER.pack(0x4C, 1, SUM, 0, 1, job ^ 1, 0, 0) + bytes(4))
    return len(MALFORMED)
