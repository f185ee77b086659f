"""Lookups on one rank: every contender is timed, and a step sorts what it looks up once."""

from __future__ import annotations

import pytest
import torch
from rich.console import Console

from benchmarks.lookups import render, run_lookup_benchmark
from laconic import kernels
from laconic.exchange import Table
from laconic.lookups import Lookups
from laconic.nn import ShardedEmbeddings


@pytest.mark.filterwarnings("ignore")  # fbgemm_gpu's own, and torch's of sparse gradients
def test_every_contender_is_timed_for_each_dimension():
    pytest.importorskip("fbgemm_gpu", reason="no fbgemm_gpu here to compare with")
    times = run_lookup_benchmark(dims=[4, 8], batch=8, repeats=1, say=lambda _: None)
    assert [(row.dim, row.contender) for row in times] == [
        (dim, name) for dim in (4, 8) for name in ("Laconic", "FBGEMM", "EmbeddingBag")
    ]
    assert all(row.ns > 0 for row in times)
    assert {row.of_fbgemm for row in times if row.contender == "FBGEMM"} == {1.0}
    console = Console(width=140, record=True)
    console.print(render(times))
    assert sum("│" in line for line in console.export_text().splitlines()) == len(times)


class Counting:
    """Kernels that say which of them sorted what."""

    def __init__(self, found):
        self.found, self.active = found, kernels.active()

    def __getattr__(self, name):
        return getattr(self.active, name)

    def distinct_keys(self, keys, distinct, inverse):
        self.found.append(("distinct_keys", len(keys)))
        return self.active.distinct_keys(keys, distinct, inverse)

    def stable_order(self, keys, order):
        if (keys[1:] < keys[:-1]).any():
            self.found.append(("stable_order", len(keys)))
        self.active.stable_order(keys, order)


def test_a_step_of_one_rank_sorts_its_lookups_once(monkeypatch):
    found = []
    counting = Counting(found)
    embeddings = ShardedEmbeddings([Table(name=f"t{t}", rows=1000, dim=8) for t in range(3)])
    ids_TB = torch.randint(1000, (3, 64), generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(kernels, "active", lambda: counting)
    embeddings(Lookups.single(ids_TB)).sum().backward()
    embeddings.optimizer.step()
    assert found == [("distinct_keys", 3 * 64)]
