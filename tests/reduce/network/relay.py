"""Links that lose, double and reorder packets, in user space: it needs neither eBPF nor root."""

from __future__ import annotations

import os
import random
import select
import socket
import threading

_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 1 << 22  # a whole window of packets: none is lost but by the dice


class Relay:
    """Passes datagrams on; every worker has a front of its own, behind which the aggregator sees a back."""

    def __init__(self, aggregator, workers, *, loss, duplication, reordering, seed):
        self._shares = (loss, duplication, reordering)
        self._dice = random.Random(seed)
        self._fronts = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(workers)]
        self._backs = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(workers)]
        for end in self._fronts + self._backs:
            end.setsockopt(
                socket.SOL_SOCKET, _SO_RCVBUFFORCE if os.geteuid() == 0 else socket.SO_RCVBUF, _BUFFER_BYTES
            )
        for front, back in zip(self._fronts, self._backs, strict=True):
            front.bind(("127.0.0.1", 0))
            back.connect(aggregator)
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
            for end in select.select(ends, [], [], 0.005)[0]:
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
