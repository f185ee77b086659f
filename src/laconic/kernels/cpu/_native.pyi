from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]

def available() -> list[str]: ...
def max_bytes(longs: Array, doubles: Array) -> int: ...
def encode_blocks(
    kernels: str, longs: Array, doubles: Array, x: Array, out: Array, offsets: Array, threads: int
) -> None: ...
def decode_blocks(
    kernels: str, longs: Array, doubles: Array, block: Array, offsets: Array, out: Array, threads: int
) -> None: ...
def encode_ids(kernels: str, counts: Array, ids: Array, out: Array, offsets: Array, threads: int) -> None: ...
def decode_ids(
    kernels: str, counts: Array, block: Array, offsets: Array, out: Array, threads: int
) -> None: ...
def count_ids(block: Array) -> int: ...
def add_rows(kernels: str, out: Array, index: Array, source: Array, source_index: Array | None) -> None: ...
def sum_bags(kernels: str, out: Array, weight: Array, index: Array, offsets: Array | None) -> None: ...
def update_rows(
    kernels: str,
    weight: Array,
    state: Array | None,
    rows: Array,
    order: Array,
    grads: Array,
    grad_index: Array | None,
    optimizer: int,
    rate: float,
    epsilon: float,
) -> int: ...

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
