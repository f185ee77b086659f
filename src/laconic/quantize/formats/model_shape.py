"""The dense part of a model as a value, and the module that it describes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from laconic.config import Settings
from laconic.models import DLRM, DCNv2

__all__ = ["ModelShape", "linear_layers"]

Size = Annotated[int, Field(ge=1)]


class ModelShape(Settings):
    """Kind and sizes, as in the settings of training."""

    kind: Literal["dlrm", "dcn_v2"] = "dlrm"
    """``dlrm``: dot products of pairs; ``dcn_v2``: cross network."""

    dense: int = Field(ge=0)
    """Dense features."""

    tables: int = Field(ge=1)
    """Embedding tables."""

    dim: int = Field(ge=1)
    """Numbers of every embedding."""

    bottom: tuple[Size, ...] = (512, 256)
    """Layers over the dense features; DLRM adds one of size ``dim``."""

    top: tuple[Size, ...] = (512, 256)
    """Layers over the interactions; one of size 1 is added."""

    cross: int = Field(default=3, ge=1)
    """Cross layers of DCN-v2."""

    pooling: Literal["sum", "mean"] = "sum"
    """What a bag becomes."""

    def build(self) -> DLRM | DCNv2:
        """Make the module, with weights of no meaning yet."""
        if self.kind == "dlrm":
            return DLRM(
                dense=self.dense, tables=self.tables, dim=self.dim, bottom=self.bottom, top=self.top
            ).eval()
        return DCNv2(
            dense=self.dense,
            tables=self.tables,
            dim=self.dim,
            bottom=self.bottom,
            cross=self.cross,
            deep=self.top,
        ).eval()

    def layer_names(self) -> tuple[str, ...]:
        """Names of all fully connected layers, in the order of the module."""
        return tuple(linear_layers(self.build()))


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Fully connected layers by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
