"""The aggregator in user space: a thread that answers datagrams in C++."""

from __future__ import annotations

import os
import socket
import threading
from types import TracebackType
from typing import Self

from laconic.errors import CommError, PlanError
from laconic.kernels.cpu import _native
from laconic.reduce.network.aggregator import MOST_JOBS, Counters
from laconic.reduce.network.job import Address, check_job, check_workers, format_job

__all__ = ["UserAggregator"]

_SLICE_S = 0.1
_BUFFER_BYTES = 4 << 20


class UserAggregator:
    """An aggregator that listens on an address of this machine; port 0 is refused."""

    def __init__(self, address: str) -> None:
        self.address = Address.parse(address)
        self._aggregator = _native.Aggregator(MOST_JOBS)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                self._socket.setsockopt(socket.SOL_SOCKET, buffer, _BUFFER_BYTES)
            self._socket.bind(self.address.pair)
        except OSError as error:
            self._socket.close()
            raise PlanError(
                f"aggregator: expected to listen on {self.address}, got {error.strerror!r};"
                " choose an address of this machine and a free port"
            ) from error
        self._trouble: int = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="laconic-aggregator", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        while not self._closing.is_set() and self._trouble == 0:
            self._trouble = self._aggregator.serve(self._socket.fileno(), _SLICE_S)

    def register(self, job: int, workers: int) -> None:
        """Let a job begin."""
        if not self._aggregator.add_job(check_job(job), check_workers(workers)):
            raise PlanError(
                f"aggregator: job {format_job(job)}: expected a new name and at most {MOST_JOBS} jobs at a time,"
                " got a known one or one too many; release a job that has ended"
            )

    def release(self, job: int) -> None:
        """Forget a job."""
        self._aggregator.remove_job(job)

    def counters(self) -> Counters:
        """Say what became of the packets so far; CommError if the socket failed."""
        if self._trouble:
            raise CommError(f"aggregator: {self.address}: {os.strerror(self._trouble)}; start it again")
        return Counters.of(self._aggregator.counters())

    def close(self) -> None:
        """Stop answering."""
        self._closing.set()
        self._thread.join()
        self._socket.close()
