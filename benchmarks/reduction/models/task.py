"""What training asks of a model of the benchmark."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from laconic.config import Settings
from laconic.data.synthetic import zipf_rows

__all__ = ["Batch", "Task", "zipf"]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Arguments of the module, and what its result is compared with."""

    inputs: tuple[Tensor, ...]
    target: Tensor


class Task(Settings):
    """A model and its samples; all ranks make the same modules, every rank has batches of its own."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the workload, its data included."""

    @abstractmethod
    def module(self) -> nn.Module:
        """Make the module; draws come from torch's global generator."""

    @abstractmethod
    def batch_of(self, rank: int, step: int) -> Batch:
        """Return one rank's samples of one step."""

    @abstractmethod
    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Mean over the batch."""


def zipf(seed: tuple[int, ...], rows: int, shape: tuple[int, ...], exponent: float = 1.05) -> np.ndarray:
    """Draw ids below ``rows``, few of them often."""
    uniform = np.random.default_rng(seed).random((1, int(np.prod(shape))))
    return zipf_rows(uniform, np.array([rows]), exponent).reshape(shape)
