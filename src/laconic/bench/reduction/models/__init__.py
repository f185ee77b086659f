"""Models whose gradients are summed: values that make a module, its batches and its loss."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from laconic.bench.reduction.models.dlrm import Dlrm
from laconic.bench.reduction.models.encoder import Encoder
from laconic.bench.reduction.models.lstm import Lstm
from laconic.bench.reduction.models.mlp import Mlp
from laconic.bench.reduction.models.ncf import Ncf

__all__ = ["AnyTask", "Dlrm", "Encoder", "Lstm", "Mlp", "Ncf"]

AnyTask = Annotated[Dlrm | Encoder | Lstm | Mlp | Ncf, Field(discriminator="kind")]
