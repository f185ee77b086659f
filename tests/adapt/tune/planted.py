"""A source whose labels follow one table and ignore the other; both are alike in all else."""

from __future__ import annotations

import torch

from laconic.config import parse
from laconic.data import Categorical, Samples, Schema
from laconic.lookups import Lookups
from laconic.train.settings import RunSettings

ROWS = 40

SETTINGS = parse(
    """
    [data]
    kind = "synthetic"      # not opened: the source is given
    [model]
    dim = 8
    bottom = [8]
    top = [16]
    [embeddings]
    lr = 0.1
    [train]
    batch = 32
    """,
    RunSettings,
)


class OneTableMatters:
    """Samples whose label depends on the id in ``matters`` alone."""

    schema = Schema(("d",), (Categorical("matters", ROWS), Categorical("ignored", ROWS)))

    def __init__(self, samples=8192):
        random = torch.Generator().manual_seed(7)
        self._ids_TB = torch.randint(0, ROWS, (2, samples), generator=random)
        odds_R = 2.0 * torch.randn(ROWS, generator=random)
        self._label_B = torch.bernoulli(torch.sigmoid(odds_R[self._ids_TB[0]]), generator=random)

    def samples_in(self, split):
        return len(self._label_B)

    def batches(self, split, *, global_batch, rank, ranks, epoch=0, start=0):
        assert (rank, ranks) == (0, 1), "a rehearsal takes whole batches"
        for begin in range(start, len(self._label_B), global_batch):
            here = slice(begin, begin + global_batch)
            label_B = self._label_B[here]
            lookups = Lookups.single(self._ids_TB[:, here].contiguous())
            yield Samples(label_B, torch.zeros(len(label_B), 1), lookups)

    def lookups_in_order(self, split):
        return (batch.lookups for batch in self.batches(split, global_batch=1024, rank=0, ranks=1))
