"""DCN-v2: cross layers multiply the input with itself, one degree a layer.

After Wang et al., "DCN V2: Improved Deep & Cross Network" (2021). The input ``x0_BN`` is the dense
part beside all embeddings, and layer l makes ::

    x_BN = x0_BN * (W x_BN + b) + x_BN           W: N x N, or U V of rank R

    stacked     x0 -> cross -> deep -> logit
    parallel    x0 -> cross, x0 -> deep; both, side by side -> logit

Shape legend: ``B`` samples, ``F`` dense features, ``T`` tables, ``D`` embedding dimension,
``N`` width of the input.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from laconic.errors import ConfigError
from laconic.models.model import check_embeddings, check_sizes, linear, mlp

__all__ = ["DCNv2"]

Structure = Literal["stacked", "parallel"]


class DCNv2(nn.Module):
    """Cross network and deep network, one on top of the other or side by side."""

    def __init__(
        self,
        *,
        dense: int,
        tables: int,
        dim: int,
        bottom: tuple[int, ...] = (),
        cross: int = 3,
        rank: int | None = None,
        deep: tuple[int, ...] = (512, 256),
        structure: Structure = "stacked",
    ) -> None:
        """``cross`` counts layers; ``rank`` None is full rank.

        ``bottom`` sizes an MLP for the dense features; without it they enter as they are.
        """
        super().__init__()
        check_sizes("dcn_v2", least=0, dense=dense)
        check_sizes("dcn_v2", least=1, tables=tables, dim=dim, cross=cross)
        if rank is not None:
            check_sizes("dcn_v2", least=1, rank=rank)
        if structure not in get_args(Structure):
            known = ", ".join(get_args(Structure))
            raise ConfigError(f"dcn_v2.structure: no such structure {structure!r} (known: {known})")
        if bottom and not dense:
            raise ConfigError(f"dcn_v2.bottom: no dense features to feed it, got {bottom!r}; leave it empty")
        self.tables, self.dim, self.structure = tables, dim, structure
        self.bottom = mlp("dcn_v2.bottom", dense, bottom)
        width = (dense, *bottom)[-1] + tables * dim
        self.cross = nn.ModuleList(_cross_layer(width, rank) for _ in range(cross))
        self.deep = mlp("dcn_v2.deep", width, deep)
        joint = (width, *deep)[-1] + (width if structure == "parallel" else 0)
        self.logit = linear(joint, 1)

    def dense_part(self, dense_BF: Tensor) -> Tensor:
        """Return the output of the bottom MLP, or the features as they are."""
        return self.bottom(dense_BF)  # type: ignore[no-any-return]

    def head(self, dense_part: Tensor, embeddings_BTD: Tensor) -> Tensor:
        """Return logits of the cross network and the deep network."""
        check_embeddings("dcn_v2", embeddings_BTD, self.tables, self.dim)
        x0_BN = torch.cat([dense_part, embeddings_BTD.flatten(1)], dim=1)
        x_BN = x0_BN
        for layer in self.cross:
            x_BN = torch.addcmul(x_BN, x0_BN, layer(x_BN))
        stacked = self.structure == "stacked"
        joint = self.deep(x_BN) if stacked else torch.cat([x_BN, self.deep(x0_BN)], dim=1)
        return self.logit(joint).squeeze(1)  # type: ignore[no-any-return]

    def forward(self, dense_BF: Tensor, embeddings_BTD: Tensor) -> Tensor:
        """Return one logit for each sample."""
        return self.head(self.dense_part(dense_BF), embeddings_BTD)


def _cross_layer(width: int, rank: int | None) -> nn.Module:
    """W x + b with a bias of zero at first, so that crossing starts without a constant."""
    last = nn.Linear(width if rank is None else rank, width)
    nn.init.xavier_normal_(last.weight)
    nn.init.zeros_(last.bias)
    if rank is None:
        return last
    first = nn.Linear(width, rank, bias=False)
    nn.init.xavier_normal_(first.weight)
    return nn.Sequential(first, last)
