"""One host of the switch benchmark: sums through the aggregator, or by gloo where there is none."""

from __future__ import annotations

import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist

from laconic.reduce.network.client import ADDRESS_VARIABLE, InNetwork


def main() -> None:
    """Sum some rounds of known integers, check every one, and print their times."""
    values, rounds = int(os.environ["VALUES"]), int(os.environ["ROUNDS"])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    network = InNetwork.from_environment(timeout_s=60) if ADDRESS_VARIABLE in os.environ else None
    if network is None:
        dist.init_process_group("gloo")
    pattern = np.arange(values, dtype=np.int32) % 1000
    x = np.empty(values, dtype=np.int32)
    together = np.zeros(1, dtype=np.int32)
    times = []
    for round_number in range(rounds):
        np.multiply(pattern, rank + 1 + round_number, out=x)
        if network is None:
            dist.barrier()
            began = time.monotonic()
            dist.all_reduce(torch.from_numpy(x))
        else:
            network.add(together)
            began = time.monotonic()
            network.add(x)
        times.append(time.monotonic() - began)
        factor = sum(other + 1 + round_number for other in range(world))
        assert np.array_equal(x, pattern * factor), "the sum is wrong"
    if network is None:
        dist.destroy_process_group()
    print(json.dumps(times))


if __name__ == "__main__":
    main()
