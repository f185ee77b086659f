"""DLRM: dense features become one more embedding, and all embeddings meet in pairs.

After Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation
Systems" (2019); the result is a logit, the sigmoid belongs to the loss. ::

    dense_BF -> bottom MLP -> dense_BD -+-> vectors_BVD -> dots of pairs -+-> top MLP -> logits_B
                      embeddings_BTD ---'                     dense_BD ---'

Without dense features there is no bottom MLP and no dense vector: V is T instead of T + 1.
Shape legend: ``B`` samples, ``F`` dense features, ``T`` tables, ``D`` embedding dimension,
``V`` vectors that interact, ``P`` their pairs, ``V * (V - 1) / 2``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from laconic.errors import ConfigError
from laconic.models.model import check_embeddings, check_sizes, linear, mlp

__all__ = ["DLRM"]


class DLRM(nn.Module):
    """Bottom MLP, dot products of pairs, top MLP."""

    pairs_P: Tensor

    def __init__(
        self,
        *,
        dense: int,
        tables: int,
        dim: int,
        bottom: tuple[int, ...] = (512, 256),
        top: tuple[int, ...] = (512, 256),
    ) -> None:
        """Take sizes of layers, without the last: it is ``dim`` for ``bottom``, 1 for ``top``."""
        super().__init__()
        check_sizes("dlrm", least=0, dense=dense)
        check_sizes("dlrm", least=1, tables=tables, dim=dim)
        vectors = tables + (dense > 0)
        if vectors < 2:
            raise ConfigError(
                "dlrm: 1 table and no dense features leave no pair to interact; add either, or use DCNv2"
            )
        self.tables, self.dim = tables, dim
        self.bottom = mlp("dlrm.bottom", dense, (*bottom, dim)) if dense else nn.Sequential()
        rows, columns = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs_P", rows * vectors + columns, persistent=False)
        width = (dim if dense else 0) + self.pairs_P.numel()
        self.top = mlp("dlrm.top", width, top)
        self.logit = linear((width, *top)[-1], 1)

    def dense_part(self, dense_BF: Tensor) -> Tensor:
        """Return ``dense_BD`` of the bottom MLP; B x 0 if there are no dense features."""
        return self.bottom(dense_BF)  # type: ignore[no-any-return]

    def head(self, dense_part: Tensor, embeddings_BTD: Tensor) -> Tensor:
        """Return logits; pairs are the lower triangle of one batched product, row by row."""
        check_embeddings("dlrm", embeddings_BTD, self.tables, self.dim)
        vectors_BVD = embeddings_BTD
        if dense_part.shape[1]:
            vectors_BVD = torch.cat([dense_part.unsqueeze(1), embeddings_BTD], dim=1)
        dots_BVV = torch.bmm(vectors_BVD, vectors_BVD.transpose(1, 2))
        dots_BP = dots_BVV.flatten(1).index_select(1, self.pairs_P)
        top = self.top(torch.cat([dense_part, dots_BP], dim=1))
        return self.logit(top).squeeze(1)  # type: ignore[no-any-return]

    def forward(self, dense_BF: Tensor, embeddings_BTD: Tensor) -> Tensor:
        """Return one logit for each sample."""
        return self.head(self.dense_part(dense_BF), embeddings_BTD)
