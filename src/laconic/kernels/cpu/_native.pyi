from typing import Any

from numpy.typing import NDArray

from laconic.kernels import api

Array = NDArray[Any]

def available() -> list[str]: ...
def load(name: str) -> api.Kernels: ...

PACKET_VALUES: int
PACKET_WORKERS: int
PACKET_WINDOW: int
PACKET_POOL: int
PACKET_PORT: int

class Outcome:
    DONE: Outcome
    OVERFLOW: Outcome
    OUT_OF_STEP: Outcome
    TIMEOUT: Outcome
    SYSTEM_ERROR: Outcome

class Worker:
    def __init__(self, socket: int, job: int, worker: int, workers: int, timeout_s: float) -> None: ...
    def add(self, values: Array) -> Outcome: ...
    def unite(self, words: Array) -> Outcome: ...
    round: int
    seen: int
    answered: bool
    error: int
    bytes_sent: int
    bytes_received: int
    repeated: int

class Aggregator:
    def __init__(self, most_jobs: int) -> None: ...
    def add_job(self, token: int, workers: int) -> bool: ...
    def remove_job(self, token: int) -> bool: ...
    def serve(self, socket: int, seconds: float) -> int: ...
    def counters(self) -> list[int]: ...

class RowTables:
    def add(self, rows: Array, format: int) -> None: ...
    def share(self, other: RowTables, table: int) -> None: ...

class Int8Layers:
    def add(
        self,
        weights: Array,
        scales: Array,
        biases: Array | None,
        equal: Array | None,
        range: Array | None,
        relu: bool,
    ) -> None: ...
    def run(self, x: Array, out: Array, threads: int) -> None: ...
