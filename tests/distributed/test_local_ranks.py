"""All ranks in one process do what real ranks do: bit for bit, byte for byte, wherever rows are.

The dense part is left out, so that equality can be exact: the gradient of a pooled embedding is
``(embedding - target) / samples``, one IEEE subtraction and one division, the same wherever a sample is.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
import torch

from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows, Cast, Hybrid, Lossless
from laconic.errors import ConfigError, PlanError
from laconic.exchange import SGD, RowwiseAdagrad, Table
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.exchange.ledger import DIRECTIONS
from laconic.exchange.ranks.worker import RefusedBatchError
from laconic.exchange.ranks.world import GroupWorld, one_rank
from laconic.lookups import Lookups
from tests.cases import each
from tests.distributed import many_ranks
from tests.distributed.made import made, made_local
from tests.distributed.ranks import run_ranks

DIM, SEED = 8, 5
SIZES = [60, 13, 1, 0, 30]  # even, uneven, fewer samples than ranks, none at all

BAGS = [
    Table(name="split", rows=90, sharding="row"),
    Table(name="split mean", rows=41, sharding="row", pooling="mean"),
    Table(name="whole", rows=60),
    Table(name="whole mean", rows=50, pooling="mean", owner=0),
    Table(name="copied", rows=20, sharding="replicated"),
    Table(name="copied mean", rows=7, sharding="replicated", pooling="mean"),
    Table(name="idle", rows=9, sharding="row"),
    Table(name="tiny", rows=1, sharding="row"),
]
IDLE = 6
POOLED = [
    Table(name="pooled", rows=40, send="pooled"),
    Table(name="pooled mean", rows=41, send="pooled", pooling="mean"),
    Table(name="partial", rows=42, send="pooled", sharding="row", pooling="mean"),
]
MIXED = [*BAGS, *POOLED]
COLD = [replace(table, cold=table.name in ("split", "whole mean", "copied", "partial")) for table in MIXED]
ROWS = [table for table in BAGS if table.name != "idle"]

BOUNDED = TableCodecs(
    BoundedRows(0.03, relative_to="range"), BoundedRows(0.5, relative_to="rms", rounding="unbiased")
)
DITHERED = TableCodecs(BoundedRows(0.03, relative_to="range", rounding="unbiased"), BOUNDED.backward)
HALF = TableCodecs(Cast("fp16"), Cast("fp16"))
LOSSLESS = TableCodecs(Lossless(), Lossless())
HYBRID = TableCodecs(Hybrid(0.03, relative_to="range"), BOUNDED.backward)


@dataclass(frozen=True)
class Case:
    tables: list[Table]
    codecs: tuple[TableCodecs, ...]
    optimizer: SGD | RowwiseAdagrad
    coded_ids: bool = True
    warmup_steps: int = 0
    most: int = 3
    """Ids of a bag; 1: exactly one."""
    prefetch: bool = False
    places: dict[str, Any] = field(default_factory=dict)
    """Hot and warm rows, and when they travel."""

    @property
    def policy(self) -> FixedPolicy:
        return FixedPolicy(ExchangePlan(self.codecs, self.coded_ids), self.warmup_steps)

    @property
    def batches(self) -> list[Lookups]:
        idle = IDLE if len(self.tables) == len(MIXED) else None
        return lookups_of(self.tables, most=self.most, idle=idle)

    @property
    def kind(self) -> dict[str, Any]:
        """How embeddings are made."""
        kind = {"optimizer": self.optimizer, "policy": self.policy, "seed": SEED}
        return kind | {"cold_folder": tempfile.gettempdir()} | self.places


def lookups_of(tables: list[Table], **options: Any) -> list[Lookups]:
    batches = many_ranks.random_batches(tables, SIZES, seed=3, dtype=torch.float32, **options)
    return [lookups for _, _, lookups in batches]


ADAGRAD, PLAIN_SGD = RowwiseAdagrad(0.1), SGD(4.0)
EXACT = TableCodecs()
KINDS = (BOUNDED, EXACT, HALF, DITHERED, BOUNDED, EXACT, HALF, HALF, HYBRID, HYBRID, EXACT)
HOT = {"split": [0, 1, 2, 5, 89], "split mean": range(41), "whole": [3], "whole mean": [0, 1], "idle": [4]}
WARM = {"split": [3, 4, 7, 30, 88], "whole mean": [9, 11], "copied": [1, 2], "partial": range(0, 42, 3)}
CASES = {
    "exact, adagrad": Case(MIXED, (EXACT,) * 11, ADAGRAD),
    "exact, sgd": Case(MIXED, (EXACT,) * 11, PLAIN_SGD),
    "exact, ids as they are": Case(MIXED, (EXACT,) * 11, ADAGRAD, coded_ids=False),
    "exact, one id each": Case(ROWS, (EXACT,) * 7, PLAIN_SGD, most=1),
    "exact, all pooled": Case(POOLED, (EXACT,) * 3, ADAGRAD),
    "exact, all whole and pooled": Case(POOLED[:2], (EXACT,) * 2, ADAGRAD, most=1),
    "bounded, adagrad": Case(MIXED, (BOUNDED,) * 11, ADAGRAD),
    "bounded, sgd": Case(MIXED, (BOUNDED,) * 11, PLAIN_SGD),
    "bounded, ids as they are": Case(MIXED, (BOUNDED,) * 11, ADAGRAD, coded_ids=False),
    "bounded, one id each": Case(ROWS, (BOUNDED,) * 7, ADAGRAD, most=1),
    "bounded, all pooled": Case(POOLED, (BOUNDED,) * 3, PLAIN_SGD, most=1),
    "bounded after a warm-up": Case(MIXED, (BOUNDED,) * 11, ADAGRAD, warmup_steps=1),
    "dithered forward": Case(MIXED, (DITHERED,) * 11, ADAGRAD),
    "fp16": Case(MIXED, (HALF,) * 11, ADAGRAD),
    "hybrid, all pooled": Case(POOLED, (HYBRID,) * 3, ADAGRAD),
    "of every kind": Case(MIXED, KINDS, PLAIN_SGD),
    "of every kind, adagrad": Case(MIXED, KINDS, ADAGRAD),
    "only forward": Case(MIXED, (TableCodecs(BOUNDED.forward),) * 11, ADAGRAD),
    "only backward": Case(MIXED, (TableCodecs(None, BOUNDED.backward),) * 11, ADAGRAD),
    "hot, exact": Case(MIXED, (EXACT,) * 11, ADAGRAD, places={"hot": HOT}),
    "hot, of every kind": Case(MIXED, KINDS, ADAGRAD, places={"hot": HOT}),
    "hot, lossless": Case(MIXED, (LOSSLESS,) * 11, ADAGRAD, places={"hot": HOT}),
    "hot every 2, exact": Case(MIXED, (EXACT,) * 11, ADAGRAD, places={"hot": HOT, "hot_every": 2}),
    "hot every 3, of every kind": Case(MIXED, KINDS, PLAIN_SGD, places={"hot": HOT, "hot_every": 3}),
    "cold": Case(COLD, KINDS, ADAGRAD),
    "warm and hot": Case(COLD, KINDS, ADAGRAD, places={"warm": WARM, "hot": {"whole": [3]}}),
    "prefetched": Case(MIXED, KINDS, ADAGRAD, prefetch=True),
    "prefetched rows": Case(
        COLD,
        (*KINDS[:3], *(EXACT,) * 8),
        ADAGRAD,
        prefetch=True,
        places={"look_ahead": True, "warm": WARM, "hot": {"whole": [3]}, "hot_every": 2},
    ),
}


def run(embeddings: Any, case: Case, rank: int, ranks: int) -> dict[str, Any]:
    """Train on a rank's part of every batch, look without gradients, and evaluate."""
    outputs, parts = [], []
    for lookups in case.batches:
        first, last = rank * lookups.samples // ranks, (rank + 1) * lookups.samples // ranks
        parts.append((first, many_ranks.part_of(lookups, first, last)))
    for step, (first, mine) in enumerate(parts):
        pending = embeddings.start(mine)
        if case.prefetch and step + 1 < len(parts):
            embeddings.prefetch(parts[step + 1][1])
        out_BTD = pending.wait()
        target_BTD = torch.arange(first, first + mine.samples)[:, None, None] / 64 - 1
        out_BTD.backward((out_BTD.detach() - target_BTD) / pending.global_samples)
        embeddings.optimizer.step()
        outputs.append(out_BTD.detach())
    _, mine = parts[0]
    with torch.no_grad():
        outputs.append(embeddings(mine))  # of copies that may differ
    embeddings.synchronize()
    accounts = accounts_of(embeddings)
    embeddings.eval()
    outputs.append(embeddings(mine))
    shards = {table.name: embeddings.engines[0].table_shard(table.name) for table in case.tables}
    return {
        "outputs": outputs,
        "accounts": accounts,
        "after evaluation": accounts_of(embeddings),
        "step": embeddings.engines[0].step,
        "shards": {name: (ids, rows.clone()) for name, (ids, rows, _) in shards.items()},
        "states": {
            name: (ids, state[:, None].clone())
            for name, (ids, _, state) in shards.items()
            if state is not None
        },
    }


def accounts_of(embeddings: Any) -> dict[str, dict[str, Any]]:
    return {
        direction: {
            "steps": account.steps,
            "before": account.before_T.tolist(),
            "after": account.after_T.tolist(),
            "sizes": account.sizes,
        }
        for direction, account in embeddings.engines[0].ledger.accounts.items()
    }


def run_sharded(case: Case, rank: int, ranks: int, world: Any) -> dict[str, Any]:
    embeddings = made(case.tables, DIM, world=world, **case.kind)
    found = run(embeddings, case, rank, ranks)
    embeddings.close()
    return found


def _all_cases(rank: int, ranks: int) -> dict[str, Any]:
    return {name: run_sharded(case, rank, ranks, GroupWorld()) for name, case in CASES.items()}


@cache
def run_local(name: str, ranks: int) -> dict[str, Any]:
    case = CASES[name]
    embeddings = made_local(case.tables, DIM, ranks, **case.kind)
    first = {table.name: embeddings.engines[0].table_shard(table.name)[1] for table in case.tables}
    return {"first": first, **run(embeddings, case, 0, 1)}


@pytest.fixture(scope="module", params=[1, 2, 3], ids=["1 rank", "2 ranks", "3 ranks"])
def real(request):
    return run_ranks(request.param, _all_cases)


def both(name, real):
    """A case, what every real rank found, and what ranks of one process did."""
    return CASES[name], [result[name] for result in real], run_local(name, len(real))


def bits(values: torch.Tensor) -> bytes:
    return values.contiguous().numpy().tobytes()


def assert_same_tables(ranks: list[dict[str, Any]], local: dict[str, Any], tables: list[Table]) -> None:
    for what in ("shards", "states") if local["states"] else ("shards",):
        wholes = many_ranks.whole_tables([{"shards": found[what]} for found in ranks], tables)
        for table, want in zip(tables, wholes, strict=True):
            assert bits(local[what][table.name][1].double()) == bits(want), (what, table.name)


def assert_same_accounts(ranks: list[dict[str, Any]], local: dict[str, Any]) -> None:
    """Of all ranks together."""
    for direction in DIRECTIONS:
        accounts, got = [found["accounts"][direction] for found in ranks], local["accounts"][direction]
        for what in ("before", "after"):
            per_table = zip(*(account[what] for account in accounts), strict=True)
            assert got[what] == [sum(bytes_N) for bytes_N in per_table], (direction, what)
        assert got["sizes"] == sum(account["sizes"] for account in accounts), direction
        assert {got["steps"]} == {account["steps"] for account in accounts}, direction


@each("name", CASES)
def test_rows_and_optimizer_state_are_those_of_real_ranks(real, name):
    case, ranks, local = both(name, real)
    assert bool(local["states"]) == case.optimizer.has_state
    assert_same_tables(ranks, local, case.tables)


@each("name", CASES)
def test_what_requesters_decode_is_what_real_ranks_decode(real, name):
    _, ranks, local = both(name, real)
    for step, got in enumerate(local["outputs"]):
        assert bits(got) == bits(torch.cat([found["outputs"][step] for found in ranks])), step
    assert {local["step"]} == {found["step"] for found in ranks} == {len(SIZES)}


@each("name", CASES)
def test_the_ledger_has_the_bytes_of_all_real_ranks(real, name):
    _, ranks, local = both(name, real)
    assert_same_accounts(ranks, local)
    for direction in DIRECTIONS:
        assert (sum(local["accounts"][direction]["after"]) > 0) == (len(ranks) > 1)


@each("name", CASES)
def test_evaluation_records_nothing(real, name):
    _, ranks, local = both(name, real)
    for found in (*ranks, local):
        assert found["after evaluation"] == found["accounts"]


def test_one_rank_that_is_alone_is_all_ranks_of_one():
    for name, case in CASES.items():
        alone, local = run_sharded(case, 0, 1, one_rank()), run_local(name, 1)
        assert_same_tables([alone], local, case.tables)
        assert_same_accounts([alone], local)


def test_the_cases_differ_where_they_should():
    """Or equality would say little: rows are trained, idle ones are not, codecs and divisions show."""
    trained = {name: run_local(name, 3) for name in CASES}

    def rows(name: str, table: Table) -> torch.Tensor:
        return trained[name]["shards"][table.name][1]

    for name, found in trained.items():
        for table in CASES[name].tables:
            same = torch.equal(found["first"][table.name], rows(name, table))
            assert same == (table.name == "idle"), (name, table.name)
    for rough in ("bounded, adagrad", "bounded after a warm-up", "dithered forward", "fp16", "only forward"):
        for table in MIXED:
            same = table.name in ("idle", *(("copied", "copied mean") if rough == "only forward" else ()))
            assert torch.equal(rows("exact, adagrad", table), rows(rough, table)) == same, (rough, table.name)
    assert not torch.equal(rows("hot, exact", MIXED[0]), rows("hot every 2, exact", MIXED[0]))
    name = "bounded, adagrad"
    for ranks in (2, 4):
        other = run_local(name, ranks)
        assert not torch.equal(other["shards"]["split"][1], rows(name, MIXED[0]))
        assert other["accounts"]["forward"]["after"] != trained[name]["accounts"]["forward"]["after"]


def test_where_rows_are_kept_and_when_they_travel_changes_no_bit():
    for ranks in (2, 3):
        for other in ("cold", "prefetched"):
            found, want = (run_local(name, ranks) for name in (other, "of every kind, adagrad"))
            for table in MIXED:
                assert torch.equal(found["shards"][table.name][1], want["shards"][table.name][1]), other


def test_evaluation_gives_the_rows_themselves_and_training_goes_on():
    case = CASES["bounded, one id each"]
    embeddings = made_local(ROWS, DIM, 3, policy=case.policy, seed=SEED)
    single = case.batches[0]

    def rows_BTD():
        ids_TB = single.ids_L.view(len(ROWS), -1)
        tables = (embeddings.engines[0].table_shard(table.name)[1] for table in ROWS)
        return torch.stack([rows[ids] for rows, ids in zip(tables, ids_TB, strict=True)], dim=1)

    expected_BTD = rows_BTD()
    assert not torch.equal(embeddings(single).detach(), expected_BTD)
    recorded = accounts_of(embeddings)
    embeddings.eval()
    assert torch.equal(embeddings(single), expected_BTD)
    assert not embeddings(single).requires_grad
    assert (accounts_of(embeddings), embeddings.engines[0].step) == (recorded, 1)
    embeddings.train()
    embeddings(single).sum().backward()
    assert embeddings.engines[0].step == 2
    assert not torch.equal(rows_BTD(), expected_BTD)


def test_memory_of_lookups_may_be_used_again_before_backward():
    trained = []
    for reuse in (False, True):
        embeddings = made_local(BAGS, DIM, 2, seed=SEED)
        lookups = lookups_of(BAGS, most=3, idle=IDLE)[0]
        out_BTD = embeddings(lookups)
        if reuse:
            lookups.ids_L.zero_()
            lookups.offsets.zero_()
        out_BTD.sum().backward()
        trained.append(torch.cat([embeddings.engines[0].table_shard(table.name)[1] for table in BAGS]))
    assert torch.equal(*trained)


@each("most", [1, 3])
def test_weights_of_ids_get_the_gradients_that_one_rank_gives_them(most):
    tables = [replace(table, pooling="sum") for table in BAGS]
    gradients = []
    for embeddings in (
        made(tables, DIM, seed=SEED, world=one_rank()),
        made_local(tables, DIM, 3, seed=SEED),
    ):
        plain = lookups_of(tables, most=most)[0]
        weights_L = torch.linspace(-1, 1, len(plain.ids_L)).requires_grad_()
        out_BTD = embeddings(Lookups(plain.ids_L, plain.offsets, plain.tables, weights_L))
        (out_BTD * torch.linspace(0, 1, out_BTD.numel()).view_as(out_BTD)).sum().backward()
        gradients.append(weights_L.grad)
    assert torch.equal(*gradients)
    assert gradients[0].any()


def test_a_batch_that_one_rank_cannot_look_up_is_refused_by_all_and_the_next_is_not():
    good, bad = (torch.arange(12).view(2, 6) for _ in range(2))
    bad[1, 5] = 99  # of the last rank's samples
    tables = [Table(name=name, rows=12, sharding="row") for name in "ab"]
    spoiled, whole = (made_local(tables, DIM, 3, seed=SEED) for _ in range(2))
    message = "lookups: table 'b' has 12 rows, got id 99 in sample 5; map unknown ids to a row of their own"
    pending = spoiled.start(Lookups.single(bad))
    with pytest.raises(RefusedBatchError, match=f"^{message}$"):
        pending.wait()
    for embeddings in (spoiled, whole):
        embeddings(Lookups.single(good)).sum().backward()
        assert embeddings.engines[0].pipeline.finish() == 12
        assert embeddings.engines[0].step == 1
    for table in tables:
        assert torch.equal(*(each.engines[0].table_shard(table.name)[1] for each in (spoiled, whole)))


@pytest.mark.parametrize("ranks", [0, -1])
def test_no_ranks_at_all_are_refused(ranks):
    with pytest.raises(ConfigError, match=rf"^world.ranks: expected at least 1, got {ranks}$"):
        made_local(POOLED, DIM, ranks)


def test_a_plan_for_other_tables_is_refused():
    policy = FixedPolicy(ExchangePlan.exact(2))
    embeddings = made_local(POOLED, DIM, 2, policy=policy)
    with pytest.raises(PlanError, match=r"^embeddings: expected a plan for 3 tables, got one for 2$"):
        embeddings(Lookups.single(torch.zeros(3, 4, dtype=torch.int64)))
