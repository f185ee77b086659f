"""The machine a benchmark ran on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from laconic import kernels
from laconic.machine import cores, cpu_model


@dataclass(frozen=True, slots=True)
class Machine:
    """What a reader needs to judge a speed."""

    cpu: str
    cores: int
    kernels: str
    torch: str

    @classmethod
    def this(cls) -> Machine:
        """Look at the one that we run on."""
        return cls(cpu_model(), cores(), kernels.active().name, str(torch.__version__))

    def __str__(self) -> str:
        return f"{self.cpu}, {self.cores} cores, kernels {self.kernels}, torch {self.torch}"
