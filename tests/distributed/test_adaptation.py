"""Adaptation on real ranks: all decide alike, training is left alone, and a resumed run is the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from laconic.adapt.adaptive import make_adaptive_policy
from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows
from laconic.exchange import RowwiseAdagrad, Table
from laconic.exchange.errors_seen import UpdateError
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.exchange.ranks.world import GroupWorld
from tests.distributed import many_ranks
from tests.distributed.adapting import CHOSEN, Watched, adapt, decisions_of
from tests.distributed.made import made, made_local
from tests.distributed.ranks import run_ranks
from tests.distributed.training import write_settings
from tests.train.small_runs import settings_of
from tests.train.test_checkpoint import assert_same_checkpoint, checkpoint

STEPS = 14
WIDE = (
    *("--set", "compression.rows.bound=0.5"),
    *("--set", "compression.gradients.bound=4.0"),
    *("--set", "train.eval_every=0"),
)


TIGHT = ("--set", "compression.budget=1e-12")
"""A budget that any rounding exceeds at once."""


def lines(path):
    return path.read_text().splitlines()


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """Return the folder of a run of four ranks, one of them slow, with bounds that are far too wide."""
    folder = tmp_path_factory.mktemp("adapted")
    settings = write_settings(folder, samples=16 * 4 * (STEPS + 8))
    arguments = (
        str(settings),
        "--set",
        "compression.policy=auto",
        "--set",
        f"train.steps={STEPS}",
        *WIDE,
        *TIGHT,
    )
    watched = Watched(folder / "seen", slow_rank=2, planted=True, accounted_from=4)
    adapt(4, folder / "ranks", watched, *arguments)
    return folder


def test_all_ranks_decide_the_same_and_it_is_written_down(adapted):
    seen = [lines(adapted / "seen" / f"decisions-{rank}") for rank in range(4)]
    assert seen[0] == seen[1] == seen[2] == seen[3]
    written = decisions_of(adapted / "run")
    assert [{k: v for k, v in entry.items() if k != "kind"} for entry in written] == [
        json.loads(line) for line in seen[0]
    ]
    parts = {entry["part"] for entry in written}
    assert parts == {"guard", "economy"}


def test_bounds_that_are_too_wide_are_narrowed_table_by_table_with_reasons(adapted):
    tightened = [
        entry for entry in decisions_of(adapted / "run") if entry["part"] == "guard" and entry["factor"] < 1
    ]
    assert {entry["direction"] for entry in tightened} <= {"rows", "gradients"}
    assert all(entry["reason"].startswith("narrowed: costs ") for entry in tightened)
    assert all(set(entry["tables"]) <= {"c0", "c1", "c2", "c3"} for entry in tightened)
    assert all(len(entry["tables"]) == 1 for entry in tightened)


def test_the_economy_chooses_what_pays(adapted):
    made = [entry for entry in decisions_of(adapted / "run") if entry["part"] == "economy"]
    # nobody asks another rank for rows of c2, of which every rank has a copy
    first = {(entry["direction"], entry["table"]): entry["new"] for entry in made if entry["step"] == 4}
    assert first["backward", "c0"] == CHOSEN[0]
    assert first.get(("forward", "c0")) != CHOSEN[0]  # float16 is coarser than what a guard begins with
    assert first["forward", "c1"] == first["backward", "c1"] == CHOSEN[1]
    assert all(table in ("c0", "c1") for _, table in first)


def test_reviews_were_made_and_left_training_as_it_was(adapted):
    """Ranks compare rows, row states, model, optimizer, step and ledger around each review, and would have failed."""
    for rank in range(4):
        accounts = [line.split() for line in lines(adapted / "seen" / f"accounts-{rank}")]
        assert [int(step) for step, _ in accounts] == [4, 12]
        assert 0 < int(accounts[0][1]) < int(accounts[1][1])


def test_a_run_resumed_within_a_decay_and_with_a_guard_is_the_uninterrupted_one(tmp_path):
    """Interrupted between two reviews, while rates warm up, where the other run saves nothing."""
    steps, at = 17, 11  # the last batch has one sample: none for rank 0, in reviews and in training
    decay = ("compression.decay.kind=linear", "compression.decay.k=3", "compression.decay.steps=15")
    overrides = (*decay, "compression.budget=1e-12", "train.lr_warmup=14")
    common = [*(word for override in overrides for word in ("--set", override)), *WIDE]
    straight, parts = (
        write_settings(tmp_path, samples=16 * 2 * (steps - 1) + 1, name=name) for name in ("one", "two")
    )
    watched = Watched(tmp_path / "seen")
    adapt(2, tmp_path / "a", watched, str(straight), *common)
    adapt(2, tmp_path / "b", watched, str(parts), *common, "--set", f"train.steps={at}")
    adapt(2, tmp_path / "c", watched, str(parts), *common, "--resume")
    ends = [checkpoint(tmp_path / name, steps) for name in ("one", "two")]
    assert_same_checkpoint(*ends)
    policies = [json.loads((end / "manifest.json").read_text())["policy"] for end in ends]
    assert policies[0] == policies[1]
    decisions = decisions_of(tmp_path / "one")
    assert decisions_of(tmp_path / "two") == decisions
    assert any(entry["part"] == "guard" for entry in decisions)


def test_a_cast_is_left_without_fuss_when_the_bound_has_become_too_narrow_for_it(tmp_path):
    """After step 4 the bound is 0.0022 and float16 is finer, after step 12 it is 0.001 and float16 is not."""
    settings = write_settings(tmp_path, samples=16 * 2 * 20)
    overrides = (
        "compression.economy=true",
        "compression.rows.bound=0.001",
        "train.eval_every=0",
        "train.steps=13",
    )
    decay = ("compression.decay.kind=linear", "compression.decay.k=3", "compression.decay.steps=10")
    words = [word for override in (*overrides, *decay) for word in ("--set", override)]
    watched = Watched(tmp_path / "seen", planted=True, accounted_from=4)
    adapt(2, tmp_path / "ranks", watched, str(settings), *words)
    assert [int(line.split()[0]) for line in lines(tmp_path / "seen" / "accounts-0")] == [4, 12]
    casts = [entry for entry in decisions_of(tmp_path / "run") if entry["new"] == "cast"]
    assert ("forward", "c0") in {(entry["direction"], entry["table"]) for entry in casts}


TABLES = [
    Table(name="split", rows=90, sharding="row"),
    Table(name="whole", rows=60, pooling="mean"),
    Table(name="copied", rows=20, sharding="replicated"),
    Table(name="exact", rows=41, sharding="row"),
]
CODECS = TableCodecs(
    BoundedRows(0.05, relative_to="range"), BoundedRows(0.5, relative_to="rms", rounding="unbiased")
)
PLAN = ExchangePlan((CODECS, CODECS, CODECS, TableCodecs()))
DIM, SEED = 8, 5


def bits(values: torch.Tensor) -> bytes:
    return values.contiguous().numpy().tobytes()


def lookups():
    batches = many_ranks.random_batches(TABLES, [60, 7, 31], most=3, seed=3, dtype=torch.float32)
    return [found for _, _, found in batches]


def take_back(embeddings, rank, ranks) -> dict[str, Any]:
    """Train, note and take back, change the rate, and watch; gradients do not depend on where a sample is."""

    def train(batch):
        samples = batch.samples
        first, last = rank * samples // ranks, (rank + 1) * samples // ranks
        out_BTD = embeddings(many_ranks.part_of(batch, first, last))
        target_BTD = torch.linspace(-1, 1, samples * len(TABLES) * DIM).view(samples, len(TABLES), DIM)
        out_BTD.backward((out_BTD.detach() - target_BTD[first:last]) / samples)
        embeddings.optimizer.step()

    def rows():
        return [embeddings.engines[0].table_shard(table.name)[1].clone() for table in TABLES]

    one, two, three = lookups()
    train(one)
    before = rows()
    embeddings.engines[0].begin_journal()
    watch = UpdateError(len(TABLES))
    embeddings.engines[0].observe(watch)
    tried = []
    for _ in range(2):
        train(two)
        train(three)
        tried.append(rows())
        embeddings.engines[0].undo()
    embeddings.engines[0].observe(None)
    back, step = rows(), embeddings.engines[0].step
    embeddings.engines[0].end_journal()
    embeddings.optimizer.param_groups[0]["lr"] = 0.0
    train(two)
    still = rows()
    embeddings.optimizer.param_groups[0]["lr"] = 0.5
    train(three)
    return {
        "back": [bits(a) == bits(b) for a, b in zip(before, back, strict=True)],
        "tried": [bits(a) == bits(b) for a, b in zip(*tried, strict=True)],
        "moved": any(not torch.equal(a, b) for a, b in zip(before, tried[0], strict=True)),
        "still": [bits(a) == bits(b) for a, b in zip(before, still, strict=True)],
        "step": (step, embeddings.engines[0].step),
        "sums": watch.sums_4T,
        "shards": {table.name: embeddings.engines[0].table_shard(table.name)[:2] for table in TABLES},
    }


def _on_ranks(rank: int, ranks: int) -> dict[str, Any]:
    embeddings = made(
        TABLES,
        DIM,
        optimizer=RowwiseAdagrad(0.1),
        policy=FixedPolicy(PLAN),
        seed=SEED,
        world=GroupWorld(),
    )
    return take_back(embeddings, rank, ranks)


def test_real_ranks_take_steps_back_change_their_rate_and_see_errors_as_ranks_of_one_process_do():
    real = run_ranks(3, _on_ranks)
    embeddings = made_local(
        TABLES, DIM, 3, optimizer=RowwiseAdagrad(0.1), policy=FixedPolicy(PLAN), seed=SEED
    )
    local = take_back(embeddings, 0, 1)
    for found in (*real, local):
        assert all(found["back"])
        assert all(found["tried"])  # the same steps, dither included
        assert all(found["still"])  # a rate of 0
        assert found["moved"]
        assert found["step"] == (1, 3)
    wholes = many_ranks.whole_tables(real, TABLES)
    for table, want in zip(TABLES, wholes, strict=True):
        assert bits(local["shards"][table.name][1].double()) == bits(want), table.name
    sums_4T = sum(found["sums"] for found in real)
    assert sums_4T == pytest.approx(local["sums"], rel=1e-12)
    assert (sums_4T[3, :3] > 0).all()
    assert sums_4T[3, 3] == 0


def test_one_rank_has_no_economy_and_settings_say_what_adapts():
    names = ["a", "b"]
    settings = settings_of(
        "compression.policy=auto", "compression.decay.kind=log", "compression.decay.steps=9"
    )
    for ranks in (1, 2):
        policy = make_adaptive_policy(settings.compression.effective(), names, ranks)
        assert (policy.economy is None) == (ranks == 1)
        assert policy.guard.names == ("a", "b")
        assert policy.decay is not None
    plain = make_adaptive_policy(settings_of().compression.effective(), names, 2)
    assert (plain.decay, plain.guard, plain.economy) == (None, None, None)
