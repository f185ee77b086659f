"""A small encoder of BERT's kind, which guesses words that were masked.

As in BERT the softmax shares its weights with the embedding, so that hardly any entry of the gradient is zero: the
case in which leaving zeros out cannot help. Shape legend: ``B`` sequences, ``S`` words of one.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.reduction.models.task import Batch, Task, zipf

__all__ = ["Encoder"]

_MASK, _IGNORE = 0, -100
_MASKED = 0.15


class Encoder(Task):
    """Two layers of 128, as the smallest BERT has, on generated words."""

    kind: Literal["encoder"] = "encoder"
    words: int = 30_522
    dim: int = 128
    heads: int = 2
    layers: int = 2
    length: int = 64
    batch: int = 8

    @property
    def name(self) -> str:
        """Words are generated."""
        return "encoder (generated)"

    def module(self) -> nn.Module:
        """Make it."""
        return _Module(self)

    def batch_of(self, rank: int, step: int) -> Batch:
        """Return sequences with some words masked, and which words those were."""
        words_BS = 1 + zipf((0, rank, step), self.words - 1, (self.batch, self.length))
        masked_BS = np.random.default_rng([1, rank, step]).random(words_BS.shape) < _MASKED
        masked_BS[:, 0] = True  # a loss needs at least one
        given_BS = torch.from_numpy(np.where(masked_BS, _MASK, words_BS))
        return Batch((given_BS,), torch.from_numpy(np.where(masked_BS, words_BS, _IGNORE)))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy of masked words."""
        return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=_IGNORE)


class _Module(nn.Module):
    def __init__(self, task: Encoder) -> None:
        super().__init__()
        self.words = nn.Embedding(task.words, task.dim)
        self.places = nn.Embedding(task.length, task.dim)
        layer = nn.TransformerEncoderLayer(
            task.dim, task.heads, 4 * task.dim, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, task.layers)
        self.bias = nn.Parameter(torch.zeros(task.words))
        nn.init.normal_(self.words.weight, 0.0, 0.02)

    def forward(self, words_BS: Tensor) -> Tensor:
        places_S = torch.arange(words_BS.shape[1])
        states = self.encoder(self.words(words_BS) + self.places(places_S))
        return nn.functional.linear(states, self.words.weight, self.bias)
