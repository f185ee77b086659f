"""Run a function on real gloo ranks, one process each, and bring the results home."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from multiprocessing import connection, forkserver, get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _main(
    rank: int, ranks: int, port: int, folder: str, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    dist.barrier()  # the first rank keeps the addresses: it may not end before all have met
    try:
        outcome = ("value", function(rank, ranks, *args))
    except Exception as error:
        outcome = ("error", (type(error).__name__, str(error), traceback.format_exc()))
    Path(folder, str(rank)).write_bytes(pickle.dumps(outcome))
    sys.stdout.flush()
    os._exit(0)  # a rank that failed must not wait for threads that wait for others


# torch imports _dynamo, which takes a second or two, when its first optimizer is made; and every rank
# imports the file of its test, or what a benchmark's worker needs; commands solve and serve
NEEDED = [
    *("laconic.train.run", "laconic.cli", "torch._dynamo", "numpy.ma", "pytest"),
    *("scipy.optimize", "fastapi"),
    *("benchmarks.workers", "benchmarks.reduction.sums"),
]


def server() -> Any:
    """Where processes come from: forked from one that has imported torch and done nothing with it."""
    context = get_context("forkserver")
    context.set_forkserver_preload(NEEDED)
    return context


def fork_server() -> None:
    """Make this process fork the server, before it does anything with torch: importing that again takes 5 s."""
    for name in NEEDED:
        with suppress(ImportError):  # then who needs it says so
            import_module(name)
    address = connection.arbitrary_address("AF_UNIX")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        ends, alive = os.pipe()  # the server ends when nobody has the other end any more
        pid = os.fork()
        if pid == 0:
            _serve(listener.fileno(), ends)
        os.close(ends)
    known = forkserver._forkserver
    known._forkserver_address, known._forkserver_alive_fd, known._forkserver_pid = address, alive, pid


def _serve(listener: int, ends: int) -> None:
    """Be the server, without the files of the process that it was forked from."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for file in map(int, os.listdir("/proc/self/fd")):
            if file > 2 and file not in (listener, ends):
                with suppress(OSError):  # of the listing itself
                    os.dup2(nothing, file)  # not closed: an object of the other process may close it later
        forkserver.main(listener, ends, [])
    finally:
        os._exit(0)


def run_ranks(ranks: int, function: Callable[..., Any], *args: Any, check: bool = True) -> list[Any]:
    """Return what ``function(rank, ranks, *args)`` returned on each rank; errors as (type, text, traceback)."""
    with TemporaryDirectory() as folder:
        port = free_port()
        processes = [
            server().Process(target=_main, args=(rank, ranks, port, folder, function, args))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(120)
        files = [Path(folder, str(rank)) for rank in range(ranks)]
        missing = [rank for rank, file in enumerate(files) if not file.exists()]
        assert not missing, f"ranks {missing} ended without a result"
        outcomes = [pickle.loads(file.read_bytes()) for file in files]
        failed = [
            f"rank {rank}: {value[2]}" for rank, (kind, value) in enumerate(outcomes) if kind == "error"
        ]
        assert not (check and failed), "\n".join(failed)
        return [value for _, value in outcomes]
