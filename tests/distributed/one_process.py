"""The same training in one process with nothing but torch: what any number of ranks must reproduce."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from laconic.exchange import SGD, RowwiseAdagrad, Table
from laconic.lookups import Lookups


class Scorer(nn.Module):
    """A small model with a part that needs no embeddings."""

    def __init__(self, tables: int, dim: int, dtype: torch.dtype) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        self.bottom = nn.Parameter(torch.randn(3, dim, generator=generator, dtype=dtype) / 3)
        self.top = nn.Parameter(torch.randn((tables + 1) * dim, generator=generator, dtype=dtype) / 3)

    def forward(self, dense_BF: Tensor, embeddings_BTD: Tensor) -> Tensor:
        features = torch.cat(
            [torch.tanh(dense_BF @ self.bottom), torch.tanh(3 * embeddings_BTD).flatten(1)], 1
        )
        return features @ self.top


def loss_sum(logits_B: Tensor, label_B: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(logits_B, label_B, reduction="sum")


def bags_of(lookups: Lookups, t: int, b: int) -> Tensor:
    cell = t * lookups.samples + b
    return lookups.ids_L[lookups.offsets[cell] : lookups.offsets[cell + 1]]


def look_up(weights: list[Tensor], tables: list[Table], lookups: Lookups) -> Tensor:
    columns = []
    for t, (weight, table) in enumerate(zip(weights, tables, strict=True)):
        rows = []
        for b in range(lookups.samples):
            bag = weight[bags_of(lookups, t, b)]
            total = bag.sum(0)
            rows.append(total / max(len(bag), 1) if table.pooling == "mean" else total)
        columns.append(torch.stack(rows))
    return torch.stack(columns, 1)


def train(
    weights: list[Tensor],
    tables: list[Table],
    batches: list[tuple[Tensor, Tensor, Lookups]],
    optimizer: SGD | RowwiseAdagrad,
    rate: float,
) -> tuple[list[Tensor], Scorer, list[float]]:
    """Train on whole global batches; returns tables, model and losses."""
    model = Scorer(len(tables), weights[0].shape[1], weights[0].dtype)
    dense = torch.optim.SGD(model.parameters(), lr=rate)
    states = [torch.zeros(len(weight), dtype=weight.dtype) for weight in weights]
    losses = []
    for label_B, dense_BF, lookups in batches:
        leaves = [weight.clone().requires_grad_() for weight in weights]
        loss = loss_sum(model(dense_BF, look_up(leaves, tables, lookups)), label_B) / len(label_B)
        dense.zero_grad()
        loss.backward()
        dense.step()
        losses.append(loss.item())
        for t, leaf in enumerate(leaves):
            touched = torch.unique(
                torch.cat([bags_of(lookups, t, b) for b in range(lookups.samples)] or [lookups.ids_L[:0]])
            )
            if leaf.grad is None or not len(touched):
                continue
            gradient = leaf.grad[touched]
            if isinstance(optimizer, SGD):
                weights[t][touched] -= optimizer.lr * gradient
                continue
            states[t][touched] += gradient.pow(2).mean(1)
            factor = optimizer.lr / (states[t][touched].sqrt() + optimizer.eps)
            weights[t][touched] -= factor[:, None] * gradient
    return weights, model, losses
