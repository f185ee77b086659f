"""Gradients of real models, recorded after a few steps of training on many ranks, all in this process.

Every rank has batches of its own; what is recorded is what each of them would hand to an all-reduce.
Shape legend: ``N`` ranks, ``W`` words of the flat gradient.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.reduction.models.task import Task
from benchmarks.reduction.workload import Recorded

__all__ = ["record"]

_RATE = 0.1


def record(task: Task, ranks: int, folder: Path, steps: int = 3) -> Recorded:
    """Train for some steps, and write the gradients of all ranks at the next to a file in a folder."""
    torch.manual_seed(0)
    module = task.module()
    parameters = list(module.parameters())
    for step in range(steps):
        total = sum(_gradient(task, module, rank, step) for rank in range(ranks))
        torch.nn.utils.vector_to_parameters(
            torch.nn.utils.parameters_to_vector(parameters).detach() - _RATE / ranks * total, parameters
        )
    file = folder / f"{task.name}.npy"
    words = sum(parameter.numel() for parameter in parameters)
    gradients_NW = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(ranks, words))
    for rank in range(ranks):
        gradients_NW[rank] = _gradient(task, module, rank, steps).numpy()
    gradients_NW.flush()
    file.chmod(0o644)  # hosts of the lab read it
    return Recorded(
        name=task.name,
        file=file,
        shapes=tuple(tuple(parameter.shape) for parameter in parameters),
        sparsity=float(1 - np.count_nonzero(gradients_NW[0]) / words),
    )


def _gradient(task: Task, module: nn.Module, rank: int, step: int) -> Tensor:
    batch = task.batch_of(rank, step)
    module.zero_grad()
    task.loss(module(*batch.inputs), batch.target).backward()  # type: ignore[no-untyped-call]
    return torch.cat([p.grad.reshape(-1) for p in module.parameters() if p.grad is not None])
