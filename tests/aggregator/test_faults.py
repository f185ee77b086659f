"""Loss, duplication and reordering: a seeded relay between workers and the aggregator, in both directions."""

from __future__ import annotations

import random
import select
import socket
import threading

import numpy as np
import pytest

from tests.aggregator.conftest import JOB, together


class Relay:
    """Passes datagrams on; every worker has a front of its own, behind which the aggregator sees a back."""

    def __init__(self, aggregator, workers, *, loss, duplication, reordering, seed):
        self._shares = (loss, duplication, reordering)
        self._dice = random.Random(seed)
        self._fronts = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(workers)]
        self._backs = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(workers)]
        for front, back in zip(self._fronts, self._backs, strict=True):
            front.bind(("127.0.0.1", 0))
            back.connect(aggregator.address.pair)
        self.addresses = [f"127.0.0.1:{front.getsockname()[1]}" for front in self._fronts]
        self._callers = {}
        self._held = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._pass)
        self.lost = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._closing.set()
        self._thread.join()
        for end in self._fronts + self._backs:
            end.close()

    def _pass(self):
        ends = self._fronts + self._backs
        while not self._closing.is_set():
            for end in select.select(ends, [], [], 0.05)[0]:
                datagram, sender = end.recvfrom(2000)
                number = ends.index(end)
                if number < len(self._fronts):
                    self._callers[number] = sender
                for packet in self._disturbed(number, datagram):
                    if number < len(self._fronts):
                        self._backs[number].send(packet)
                    else:
                        worker = number - len(self._fronts)
                        self._fronts[worker].sendto(packet, self._callers[worker])

    def _disturbed(self, way, datagram):
        """Return what goes on now; a packet that is held goes after the next one of its way."""
        loss, duplication, reordering = self._shares
        if self._dice.random() < loss:
            self.lost += 1
            return []
        held = self._held.pop(way, None)
        if held is None and self._dice.random() < reordering:
            self._held[way] = datagram
            return []
        packets = [datagram, datagram] if self._dice.random() < duplication else [datagram]
        return packets if held is None else [*packets, held]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "shares",
    [
        {"loss": 0.01, "duplication": 0.01, "reordering": 0.01},
        {"loss": 0.0, "duplication": 0.5, "reordering": 0.3},
        {"loss": 0.2, "duplication": 0.1, "reordering": 0.1},
    ],
    ids=lambda shares: "-".join(map(str, shares.values())),
)
def test_sums_are_right_whatever_happens_to_packets(aggregator, shares, seed):
    aggregator.register(JOB, 3)
    generator = np.random.default_rng(seed)
    arrays = [generator.integers(-(2**20), 2**20, 60_000, dtype=np.int32) for _ in range(3)]
    expected = np.sum(arrays, axis=0, dtype=np.int64)
    with Relay(aggregator, 3, **shares, seed=seed) as relay:
        for outcome in together(relay.addresses, arrays):
            assert not isinstance(outcome, Exception), outcome
    for array in arrays:
        assert np.array_equal(array, expected)
    assert relay.lost > 0 or shares["loss"] == 0


def test_many_short_rounds_survive_loss(aggregator):
    """A late packet of one round must not enter the next."""
    aggregator.register(JOB, 2)
    arrays = [np.ones(400, dtype=np.int32) for _ in range(2)]
    with Relay(aggregator, 2, loss=0.05, duplication=0.3, reordering=0.3, seed=5) as relay:
        for outcome in together(relay.addresses, arrays, rounds=30):
            assert not isinstance(outcome, Exception), outcome
    assert all((array == 1 << 30).all() for array in arrays)
