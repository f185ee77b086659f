"""The aggregator against packets made by hand: what it answers, what it drops and counts, what it keeps."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import numpy as np
import pytest

from laconic.errors import ConfigError, PlanError
from laconic.reduce.network import UserAggregator
from laconic.reduce.network.aggregator import MOST_JOBS
from tests.reduce.network.conftest import JOB, free_address, together
from tests.reduce.network.conversation import EXPECTED, MALFORMED, converse
from tests.reduce.network.packets import HEADER, PENDING, REPEATED, contribution, read


def test_a_conversation_by_the_book(aggregator):
    aggregator.register(JOB, 2)
    assert converse(aggregator.address.pair, JOB) == EXPECTED
    counters = aggregator.counters()
    assert (counters.results, counters.repeated, counters.out_of_step, counters.stale) == (3, 3, 2, 3)


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_packet_is_dropped_and_counted(aggregator, name):
    aggregator.register(JOB, 2)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(aggregator.address.pair)
        sender.settimeout(20)
        sender.send(MALFORMED[name](JOB))
        for _ in range(2):
            sender.send(contribution([1], job=JOB, worker=0))
        answer = read(sender.recv(2000))  # the second contribution gets the first answer
        assert answer.flags == PENDING | REPEATED
    counters = aggregator.counters()
    assert (counters.packets, counters.malformed, counters.repeated, counters.results) == (3, 1, 1, 0)


def test_a_packet_of_an_unknown_or_forgotten_job_is_dropped_and_counted(aggregator):
    aggregator.register(JOB, 1)
    aggregator.release(JOB)
    outcome = together([aggregator.address], [np.ones(3, dtype=np.int32)], timeout_s=0.3)[0]
    assert "check that it runs" in str(outcome)
    counters = aggregator.counters()
    assert counters.unknown_jobs == counters.packets > 0


def test_a_job_of_the_same_name_starts_anew(aggregator):
    for _ in range(3):
        aggregator.register(JOB, 2)
        arrays = [np.full(1000, 7, dtype=np.int32) for _ in range(2)]
        together([aggregator.address] * 2, arrays)
        assert all((array == 14).all() for array in arrays)
        aggregator.release(JOB)


def test_there_is_room_for_a_fixed_number_of_jobs(aggregator):
    for job in range(MOST_JOBS):
        aggregator.register(job, 1)
    with pytest.raises(PlanError, match=f"^aggregator: job 00000000000000ff: .* at most {MOST_JOBS} jobs"):
        aggregator.register(0xFF, 1)
    aggregator.release(0)
    aggregator.register(0xFF, 1)
    with pytest.raises(PlanError, match="got a known one"):
        aggregator.register(0xFF, 1)


def test_memory_does_not_grow_whatever_arrives(aggregator):
    def resident_bytes():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    aggregator.register(JOB, 2)
    generator = np.random.default_rng(0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(aggregator.address.pair)
        before, sent = None, 20_000
        for number in range(sent):
            header = HEADER.pack(
                0x4C,
                1,
                1,
                0,
                1 << int(generator.integers(32)),
                JOB + number % 3,
                number,
                number * 7919 % 2**32,
            )
            sender.send(header + bytes(4 * int(generator.integers(400))))
            if number == 5_000:
                before = resident_bytes()
    assert resident_bytes() - before < 4 << 20  # 15,000 packets of 800 bytes would be 12 MB
    assert aggregator.counters().packets > 0


def test_an_address_that_is_taken_or_not_ours_is_refused(aggregator):
    with pytest.raises(PlanError, match="got 'Address already in use'; choose"):
        UserAggregator(str(aggregator.address))
    with pytest.raises(PlanError, match="got 'Cannot assign requested address'"):
        UserAggregator("192.0.2.1")


def test_a_closed_aggregator_gives_its_address_back():
    address = free_address()
    for _ in range(2):
        UserAggregator(address).close()


def test_a_number_of_workers_out_of_range_is_refused(aggregator):
    with pytest.raises(ConfigError, match=r"^aggregator: workers: expected 1 to 32, got 0$"):
        aggregator.register(JOB, 0)
