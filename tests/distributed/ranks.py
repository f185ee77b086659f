"""Run a function on real gloo ranks, one process each, and bring the results home."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import get_context
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


def server() -> Any:
    """Where processes come from: forked from one that has imported torch and done nothing with it."""
    context = get_context("forkserver")
    # torch imports _dynamo, which takes a second or two, when its first optimizer is made; and every rank
    # imports the file of its test, or what a benchmark's worker needs
    context.set_forkserver_preload(
        [
            *("laconic.train.run", "laconic.cli", "torch._dynamo", "numpy.ma", "pytest"),
            *("benchmarks.reduction.sums", "benchmarks.training.methods"),
        ]
    )
    return context


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
