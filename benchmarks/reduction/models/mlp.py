"""A plain MLP: every entry of its gradient is there, and there is nothing to save."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.reduction.models.task import Batch, Task
from laconic.models.mlp import linear, mlp

__all__ = ["Mlp"]


class Mlp(Task):
    """About a million parameters."""

    kind: Literal["mlp"] = "mlp"
    inputs: int = 512
    hidden: tuple[int, ...] = (1024, 512, 256)
    batch: int = 512

    @property
    def name(self) -> str:
        """Samples are generated."""
        return "mlp (generated)"

    def module(self) -> nn.Module:
        """Make layers."""
        return nn.Sequential(mlp("mlp", self.inputs, self.hidden), linear(self.hidden[-1], 1))

    def batch_of(self, rank: int, step: int) -> Batch:
        """Return normal numbers, and the sign of a sum of some."""
        x = np.random.default_rng([rank, step]).standard_normal((self.batch, self.inputs), np.float32)
        return Batch((torch.from_numpy(x),), torch.from_numpy((x[:, :8].sum(1) > 0).astype(np.float32)))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Binary cross-entropy."""
        return nn.functional.binary_cross_entropy_with_logits(output.squeeze(1), target)
