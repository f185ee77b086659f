"""A language model: an LSTM that guesses the next word.

Words that do not occur leave zeros in the gradient of the embedding; the gradient of the softmax has none.
Shape legend: ``B`` sequences, ``S`` words of one.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from benchmarks.reduction.models.task import Batch, Task, zipf

__all__ = ["Lstm"]


class Lstm(Task):
    """One layer, on generated words, few of them often."""

    kind: Literal["lstm"] = "lstm"
    words: int = 10_000
    dim: int = 256
    hidden: int = 256
    length: int = 32
    batch: int = 16

    @property
    def name(self) -> str:
        """Words are generated."""
        return "lstm (generated)"

    def module(self) -> nn.Module:
        """Make it."""
        return _Module(self)

    def batch_of(self, rank: int, step: int) -> Batch:
        """Return sequences, and what follows each word."""
        words_BS = torch.from_numpy(zipf((rank, step), self.words, (self.batch, self.length + 1)))
        return Batch((words_BS[:, :-1],), words_BS[:, 1:])

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy of the next word."""
        return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


class _Module(nn.Module):
    def __init__(self, task: Lstm) -> None:
        super().__init__()
        self.embedding = nn.Embedding(task.words, task.dim)
        self.lstm = nn.LSTM(task.dim, task.hidden, batch_first=True)
        self.next = nn.Linear(task.hidden, task.words)

    def forward(self, words_BS: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(words_BS))
        return self.next(states)  # type: ignore[no-any-return]
