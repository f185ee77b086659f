"""One worker's end of in-network aggregation.

::

    with InNetwork("10.0.0.254", job=job, worker=rank, workers=4) as network:
        network.add(values)      # int32: the sum over all workers, in place
        network.unite(words)     # uint32: the bitwise OR

All workers call the same operations on arrays of the same length, in the same order. Packets are
sent and received by ``csrc/network/packets.cpp``.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from laconic.errors import CommError, ConfigError
from laconic.kernels.cpu import _native
from laconic.reduce.network.job import Address, check_job, check_workers, format_job, parse_job

__all__ = ["ADDRESS_VARIABLE", "JOB_VARIABLE", "InNetwork"]

ADDRESS_VARIABLE = "LACONIC_AGGREGATOR"
JOB_VARIABLE = "LACONIC_AGGREGATION_JOB"

_RECEIVE_BYTES = 1 << 20
_SEND_BYTES = 1 << 16  # what waits in the queue of a slow card; more would be dropped there
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 10, 2


class InNetwork:
    """A network that adds: one worker's end of an aggregator, which sums what all workers send.

    After an error other than an overflow it is of no more use. ``address`` is the aggregator's
    ``host`` or ``host:port``, ``job`` a number of 64 bits that all workers share, ``worker`` this
    one's number out of ``workers``. ``timeout_s`` is how long an operation waits for the others.

    >>> import numpy as np
    >>> from laconic.reduce.network import UserAggregator
    >>> with UserAggregator("127.0.0.1:29479") as aggregator:
    ...     aggregator.register(job=7, workers=1)
    ...     with laconic.InNetwork("127.0.0.1:29479", job=7, worker=0, workers=1) as network:
    ...         values = np.array([1, -2, 3], np.int32)
    ...         network.add(values)  # the sum over all workers, in place
    >>> values.tolist()
    [1, -2, 3]

    ``laconic.register_ddp(model, network)`` lets it sum a model's gradients.
    """

    def __init__(self, address: str, *, job: int, worker: int, workers: int, timeout_s: float = 20.0) -> None:
        self._address = Address.parse(address)
        self._job = check_job(job)
        self._workers = check_workers(workers)
        if isinstance(worker, bool) or not isinstance(worker, int) or not 0 <= worker < workers:
            raise ConfigError(f"in-network: worker: expected 0 to {workers - 1}, got {worker!r}")
        if not timeout_s > 0:
            raise ConfigError(f"in-network: timeout_s: expected more than 0, got {timeout_s!r}")
        self._timeout_s = timeout_s
        self._broken: str | None = None
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
            self._socket.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
            self._socket.connect(self._address.pair)
        except OSError as error:
            self._socket.close()
            raise CommError(
                f"in-network: expected a way to the aggregator {self._address}, got {error.strerror!r};"
                " check its address and this host's routes"
            ) from error
        self._worker = _native.Worker(self._socket.fileno(), self._job, worker, workers, timeout_s)

    @classmethod
    def from_environment(
        cls, *, timeout_s: float = 20.0, environment: Mapping[str, str] = os.environ
    ) -> InNetwork:
        """Join the aggregator that ``laconic lab --aggregator`` tells its jobs of, as this rank."""
        names = (ADDRESS_VARIABLE, JOB_VARIABLE, "RANK", "WORLD_SIZE")
        lacking = [name for name in names if name not in environment]
        if lacking:
            raise ConfigError(
                f"in-network: expected {', '.join(names)} in the environment, got no {lacking[0]};"
                " run the job by 'laconic lab --aggregator xdp' or set them"
            )
        address, job, rank, world = (environment[name] for name in names)
        return cls(address, job=parse_job(job), worker=int(rank), workers=int(world), timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, values: NDArray[np.int32]) -> None:
        """Replace the values by their sum over all workers.

        ``CommError`` where a sum does not fit in int32.
        """
        self._reduce(self._worker.add, _checked(values, np.dtype(np.int32)))

    def unite(self, words: NDArray[np.uint32]) -> None:
        """Replace the words by their bitwise OR over all workers."""
        self._reduce(self._worker.unite, _checked(words, np.dtype(np.uint32)))

    def _reduce(self, operation: Any, values: NDArray[Any]) -> None:
        if self._broken is not None:
            raise CommError(f"in-network: expected a worker in step, got one that is {self._broken}")
        self._broken = "interrupted; start the job again"
        outcome = operation(values)
        if outcome in (_native.Outcome.DONE, _native.Outcome.OVERFLOW):
            self._broken = None
        if outcome == _native.Outcome.OVERFLOW:
            raise CommError(
                f"in-network: round {self._round}: expected sums that fit in int32, got larger ones;"
                f" keep every value within {(2**31 - 1) // self._workers} for {self._workers} workers"
            )
        if outcome != _native.Outcome.DONE:
            self._broken = "out of step after an error; start the job again"
            raise CommError(f"in-network: round {self._round}: {self._reason(outcome)}")

    @property
    def _round(self) -> int:
        return int(self._worker.round) - 1

    def _reason(self, outcome: Any) -> str:
        if outcome == _native.Outcome.OUT_OF_STEP:
            return (
                "expected all workers to do the same operation on as many values, got different ones;"
                " the workers are out of step"
            )
        if outcome == _native.Outcome.SYSTEM_ERROR:
            return (
                f"expected to send to {self._address}, got {os.strerror(self._worker.error)!r};"
                " packets need a link with an MTU of 1500 or more"
            )
        if not self._worker.answered:
            return (
                f"expected an answer of the aggregator {self._address}, got none within {self._timeout_s:g} s;"
                f" check that it runs, that it knows job {format_job(self._job)}, and the link"
            )
        missing = [worker for worker in range(self._workers) if not self._worker.seen >> worker & 1]
        if not missing:
            return (
                f"expected the results of the aggregator {self._address}, got none within {self._timeout_s:g} s;"
                " all workers are in, so check the link"
            )
        return (
            f"expected all {self._workers} workers, got nothing from worker {', '.join(map(str, missing))}"
            f" within {self._timeout_s:g} s; it is gone or late, see its own error, or raise timeout_s"
        )

    @property
    def bytes_sent(self) -> int:
        """Bytes that this worker put on its link: values and all headers, Ethernet's included."""
        return int(self._worker.bytes_sent)

    @property
    def bytes_received(self) -> int:
        """Bytes that came for this worker, with all headers."""
        return int(self._worker.bytes_received)

    @property
    def packets_repeated(self) -> int:
        """Packets that were sent again, for lack of an answer."""
        return int(self._worker.repeated)

    def close(self) -> None:
        """Leave without waiting for others; a second call does nothing."""
        self._broken = "closed"
        self._socket.close()


def _checked(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array that can be filled in place, or raise: a copy would lose the result."""
    is_array = isinstance(values, np.ndarray)
    if not is_array or values.dtype != dtype or not values.flags.c_contiguous or not values.flags.writeable:
        got = f"{values.dtype} of strides {values.strides}" if is_array else type(values).__name__
        raise ConfigError(f"in-network: expected a contiguous, writable array of {dtype}, got {got}")
    return values.reshape(-1)
