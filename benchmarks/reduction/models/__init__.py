"""Models whose gradients are summed: values that make a module, its batches and its loss."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from benchmarks.reduction.models.dlrm import Dlrm
from benchmarks.reduction.models.encoder import Encoder
from benchmarks.reduction.models.lstm import Lstm
from benchmarks.reduction.models.mlp import Mlp
from benchmarks.reduction.models.ncf import Ncf

__all__ = ["AnyTask", "Dlrm", "Encoder", "Lstm", "Mlp", "Ncf"]

AnyTask = Annotated[Dlrm | Encoder | Lstm | Mlp | Ncf, Field(discriminator="kind")]
