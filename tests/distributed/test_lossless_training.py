"""Lossless communication trains the model that exact communication trains, bit for bit, and sends less."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laconic import Lossless
from laconic.adapt.policy import FixedPolicy
from laconic.exchange import RowwiseAdagrad
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from tests.distributed import many_ranks
from tests.distributed.many_ranks import TABLES
from tests.distributed.ranks import run_ranks
from tests.distributed.training import train, write_settings
from tests.train.test_checkpoint import assert_equal, checkpoint

DIM, STEPS = 16, 6
HOT = {"split": np.arange(0, 300, 7), "whole": np.array([1, 3])}
MIXED = (
    TableCodecs(Lossless(), None),
    TableCodecs(None, Lossless()),
    *[TableCodecs(Lossless(), Lossless())] * 3,
)


def _all_ways(rank, ranks):
    batches = many_ranks.random_batches(TABLES, [48] * 4 + [13], most=3, seed=1, dtype=torch.float32)
    plans = {
        "exact": None,
        "lossless": ExchangePlan((TableCodecs(Lossless(), Lossless()),) * len(TABLES)),
        "mixed": ExchangePlan(MIXED),
    }
    return {
        name: many_ranks.train(
            rank,
            ranks,
            TABLES,
            DIM,
            batches,
            RowwiseAdagrad(0.1),
            0.1,
            policy=None if plan is None else FixedPolicy(plan),
            hot=HOT,
        )
        for name, plan in plans.items()
    }


def test_rows_and_gradients_change_no_bit_of_the_model():
    for result in run_ranks(3, _all_ways):
        exact = result.pop("exact")
        before = {row["direction"]: row["bytes_sent"] for row in exact["ledger"]}
        for name, coded in result.items():
            assert coded["losses"] == exact["losses"]
            for table, (ids, rows) in exact["shards"].items():
                assert coded["shards"][table][0] == ids
                assert torch.equal(coded["shards"][table][1], rows), (name, table)
                assert torch.equal(coded["states"][table], exact["states"][table]), (name, table)
            assert all(torch.equal(*pair) for pair in zip(coded["dense"], exact["dense"], strict=True))
            for row in coded["ledger"]:
                if row["direction"] == "forward" or (row["direction"] == "backward" and name == "lossless"):
                    assert row["bytes_sent"] < 0.97 * before[row["direction"]], (name, row)


def settings_of(folder):
    return str(write_settings(folder, samples=16 * 3 * STEPS))


def arguments(**values):
    return [
        word for name, value in values.items() for word in ("--set", f"{name.replace('__', '.')}={value}")
    ]


@pytest.mark.parametrize(
    ("ranks", "dense"),
    # two gradients have one sum, whatever the order; of three, gloo's depends on a value's place in its bucket
    [(2, "lossless"), (3, "exact")],
)
def test_laconic_train_ends_with_the_same_bits(tmp_path, ranks, dense):
    ends = []
    for kind, send in (("exact", "exact"), ("lossless", dense)):
        folder = tmp_path / kind
        folder.mkdir()
        how = arguments(
            compression__rows=kind,
            compression__gradients=kind,
            compression__dense=send,
            train__eval_every=0,
            train__steps=STEPS,
        )
        train(ranks, folder / "ranks", settings_of(folder), *how)
        ends.append(checkpoint(folder / "run", STEPS))
    files = sorted(path.name for path in ends[0].glob("*.pt"))
    assert len(files) == 1 + ranks
    for file in files:
        assert_equal(*(torch.load(end / file, weights_only=True) for end in ends))
