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
def sparse_index_room(words: int, unit: int) -> int: ...
def compact(
    kernels: str, x: Array, bounds: Array, unit: int, index: Array, values: Array, sizes: Array
) -> None: ...
def compact_large(
    kernels: str,
    gradient: Array,
    memory: Array,
    bounds: Array,
    thresholds: Array,
    index: Array,
    values: Array,
    counts: Array,
) -> tuple[int, int]: ...
def place_sum(
    index: Array, index_bounds: Array, values: Array, value_bounds: Array, unit: int, out: Array
) -> None: ...
def compact_sum(
    index: Array,
    index_bounds: Array,
    values: Array,
    value_bounds: Array,
    words: int,
    unit: int,
    index_out: Array,
    values_out: Array,
) -> tuple[int, int]: ...
def to_levels(kernels: str, x: Array, counts: Array, levels: Array, bases: Array) -> None: ...
def from_levels(kernels: str, levels: Array, counts: Array, bases: Array, out: Array) -> None: ...
def unite(index: Array, bounds: Array, words: int, unit: int, index_out: Array) -> tuple[int, int]: ...
def pick(index: Array, x: Array, unit: int, values: Array) -> int: ...
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
def encode_sketch(kernels: str, layout: Array, x: Array, cells: Array, index: Array) -> int: ...
def decode_sketch(kernels: str, layout: Array, cells: Array, index: Array, out: Array) -> int: ...
def threshold_rows(x: Array, keep: float, method: int, places: Array, values: Array) -> int: ...

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
    def __init__(self, dim: int) -> None: ...
    def add(self, rows: Array, format: int) -> None: ...
    def share(self, other: RowTables, table: int) -> None: ...

def embedding_bags(
    kernels: str,
    tables: RowTables,
    ids: Array,
    offsets: Array,
    weights: Array | None,
    mean: bool,
    unknown: Array | None,
    out: Array,
    first: int,
    threads: int,
) -> int: ...
def quantize_rows(kernels: str, x: Array, format: int, method: int, out: Array, threads: int) -> int: ...

class Int8Layers:
    def __init__(self, kernels: str, wide: bool = True) -> None: ...
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

def interact(
    kernels: str, vectors: Array, keep: int, out: Array, threads: int, wide: bool = True
) -> None: ...
