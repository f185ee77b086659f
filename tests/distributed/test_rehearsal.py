"""A rehearsal in one process is what real ranks do: bit for bit, byte for byte.

The dense part is left out, so that equality can be exact: the gradient of a pooled embedding is
``(embedding - target) / samples``, one IEEE subtraction and one division, the same wherever a sample is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
from laconic.exchange.world import GroupWorld, one_rank
from laconic.lookups import Lookups
from laconic.nn import RehearsedEmbeddings, ShardedEmbeddings
from tests.cases import each
from tests.distributed import many_ranks
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
POOLED = [Table(name=f"pooled {t}", rows=40 + t, send="pooled") for t in range(3)]
MIXED = [*BAGS, *POOLED]
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
    hot: dict[str, Any] = field(default_factory=dict)

    @property
    def policy(self) -> FixedPolicy:
        return FixedPolicy(ExchangePlan(self.codecs, self.coded_ids), self.warmup_steps)

    def batches(self) -> list[Lookups]:
        """Bags of up to three ids where requesters make them, of one id for pooled tables; or one id for all."""
        if self.tables is not MIXED:
            return lookups_of(self.tables, most=1)
        pairs = zip(lookups_of(BAGS, most=3, idle=IDLE), lookups_of(POOLED, most=1), strict=True)
        return [side_by_side(*pair) for pair in pairs]


def lookups_of(tables: list[Table], **options: Any) -> list[Lookups]:
    batches = many_ranks.random_batches(tables, SIZES, seed=3, dtype=torch.float32, **options)
    return [lookups for _, _, lookups in batches]


def side_by_side(left: Lookups, right: Lookups) -> Lookups:
    offsets = torch.cat([left.offsets, left.offsets[-1] + right.offsets[1:]])
    return Lookups(torch.cat([left.ids_L, right.ids_L]), offsets, left.tables + right.tables)


ADAGRAD, PLAIN_SGD = RowwiseAdagrad(0.1), SGD(4.0)
EXACT = TableCodecs()
HOT = {"split": [0, 1, 2, 5, 89], "split mean": range(41), "whole": [3], "whole mean": [0, 1], "idle": [4]}
CASES = {
    "exact, adagrad": Case(MIXED, (EXACT,) * 11, ADAGRAD),
    "exact, sgd": Case(MIXED, (EXACT,) * 11, PLAIN_SGD),
    "exact, ids as they are": Case(MIXED, (EXACT,) * 11, ADAGRAD, coded_ids=False),
    "exact, one id each": Case(ROWS, (EXACT,) * 7, PLAIN_SGD),
    "exact, all pooled": Case(POOLED, (EXACT,) * 3, ADAGRAD),
    "bounded, adagrad": Case(MIXED, (BOUNDED,) * 11, ADAGRAD),
    "bounded, sgd": Case(MIXED, (BOUNDED,) * 11, PLAIN_SGD),
    "bounded, ids as they are": Case(MIXED, (BOUNDED,) * 11, ADAGRAD, coded_ids=False),
    "bounded, one id each": Case(ROWS, (BOUNDED,) * 7, ADAGRAD),
    "bounded, all pooled": Case(POOLED, (BOUNDED,) * 3, PLAIN_SGD),
    "bounded after a warm-up": Case(MIXED, (BOUNDED,) * 11, ADAGRAD, warmup_steps=1),
    "dithered forward": Case(MIXED, (DITHERED,) * 11, ADAGRAD),
    "fp16": Case(MIXED, (HALF,) * 11, ADAGRAD),
    "hybrid, all pooled": Case(POOLED, (HYBRID,) * 3, ADAGRAD),
    "of every kind": Case(
        MIXED,
        (BOUNDED, EXACT, HALF, DITHERED, BOUNDED, EXACT, HALF, HALF, HYBRID, HYBRID, EXACT),
        PLAIN_SGD,
    ),
    "only forward": Case(MIXED, (TableCodecs(BOUNDED.forward),) * 11, ADAGRAD),
    "hot, exact": Case(MIXED, (EXACT,) * 11, ADAGRAD, hot=HOT),
    "hot, of every kind": Case(
        MIXED,
        (BOUNDED, EXACT, HALF, DITHERED, BOUNDED, EXACT, HALF, HALF, HYBRID, HYBRID, EXACT),
        ADAGRAD,
        hot=HOT,
    ),
    "hot, lossless": Case(MIXED, (LOSSLESS,) * 11, ADAGRAD, hot=HOT),
    "only backward": Case(MIXED, (TableCodecs(None, BOUNDED.backward),) * 11, ADAGRAD),
}


def run(embeddings: Any, case: Case, rank: int, ranks: int) -> dict[str, Any]:
    """Train on a rank's part of every batch, look without gradients, and evaluate."""
    outputs = []

    def part(lookups: Lookups) -> tuple[int, Lookups]:
        first, last = rank * lookups.samples // ranks, (rank + 1) * lookups.samples // ranks
        return first, many_ranks.part_of(lookups, first, last)

    batches = case.batches()
    for lookups in batches:
        first, mine = part(lookups)
        pending = embeddings.start(mine)
        out_BTD = pending.wait()
        target_BTD = torch.arange(first, first + mine.samples)[:, None, None] / 64 - 1
        out_BTD.backward((out_BTD.detach() - target_BTD) / pending.global_samples)
        embeddings.finish()
        outputs.append(out_BTD.detach())
    _, mine = part(batches[0])
    with torch.no_grad():
        outputs.append(embeddings(mine))
    accounts = accounts_of(embeddings)
    embeddings.eval()
    outputs.append(embeddings(mine))
    return {
        "outputs": outputs,
        "accounts": accounts,
        "after evaluation": accounts_of(embeddings),
        "step": embeddings.step,
    }


def accounts_of(embeddings: Any) -> dict[str, dict[str, Any]]:
    return {
        direction: {
            "steps": account.steps,
            "before": account.before_T.tolist(),
            "after": account.after_T.tolist(),
            "sizes": account.sizes,
        }
        for direction, account in embeddings.ledger.accounts.items()
    }


def run_sharded(case: Case, rank: int, ranks: int, world: Any) -> dict[str, Any]:
    embeddings = ShardedEmbeddings(
        case.tables, DIM, optimizer=case.optimizer, policy=case.policy, seed=SEED, world=world, hot=case.hot
    )
    found = run(embeddings, case, rank, ranks)
    shards = {table.name: embeddings.table_shard(table.name) for table in case.tables}
    found["shards"] = {name: (ids, rows.clone()) for name, (ids, rows, _) in shards.items()}
    found["states"] = {
        name: (ids, state[:, None].clone()) for name, (ids, _, state) in shards.items() if state is not None
    }
    embeddings.close()
    return found


def _all_cases(rank: int, ranks: int) -> dict[str, Any]:
    return {name: run_sharded(case, rank, ranks, GroupWorld()) for name, case in CASES.items()}


@cache
def rehearse(name: str, ranks: int) -> dict[str, Any]:
    case = CASES[name]
    embeddings = RehearsedEmbeddings(
        case.tables, DIM, ranks, optimizer=case.optimizer, policy=case.policy, seed=SEED, hot=case.hot
    )
    first = embeddings.exchange.weight_RD.clone()
    found = run(embeddings, case, 0, 1)
    exchange = embeddings.exchange
    ends = exchange.whole.base_T[1:-1].tolist()
    found["first"] = first.tensor_split(ends)
    found["tables"] = exchange.weight_RD.tensor_split(ends)
    found["states"] = () if exchange.state_R is None else exchange.state_R[:, None].tensor_split(ends)
    return found


@pytest.fixture(scope="module", params=[1, 3], ids=["1 rank", "3 ranks"])
def real(request):
    return run_ranks(request.param, _all_cases)


def both(name, real):
    """A case, what every real rank found, and what a rehearsal did."""
    return CASES[name], [result[name] for result in real], rehearse(name, len(real))


def bits(values: torch.Tensor) -> bytes:
    return values.contiguous().numpy().tobytes()


def assert_same_tables(results: list[dict[str, Any]], rehearsed: Any, tables: list[Table]) -> None:
    for table, got, want in zip(tables, rehearsed, many_ranks.whole_tables(results, tables), strict=True):
        assert bits(got.double()) == bits(want), table.name


def assert_same_accounts(ranks: list[dict[str, Any]], rehearsed: dict[str, Any]) -> None:
    """Of all ranks together."""
    for direction in DIRECTIONS:
        accounts, got = [found["accounts"][direction] for found in ranks], rehearsed["accounts"][direction]
        for what in ("before", "after"):
            per_table = zip(*(account[what] for account in accounts), strict=True)
            assert got[what] == [sum(bytes_N) for bytes_N in per_table], (direction, what)
        assert got["sizes"] == sum(account["sizes"] for account in accounts), direction
        assert {got["steps"]} == {account["steps"] for account in accounts}, direction


@each("name", CASES)
def test_rows_and_optimizer_state_are_those_of_real_ranks(real, name):
    case, ranks, rehearsed = both(name, real)
    assert_same_tables(ranks, rehearsed["tables"], case.tables)
    if case.optimizer.has_state:
        states = [{"shards": found["states"]} for found in ranks]
        assert_same_tables(states, rehearsed["states"], case.tables)


@each("name", CASES)
def test_what_requesters_decode_is_what_real_ranks_decode(real, name):
    _, ranks, rehearsed = both(name, real)
    for step, got in enumerate(rehearsed["outputs"]):
        assert bits(got) == bits(torch.cat([found["outputs"][step] for found in ranks])), step
    assert {rehearsed["step"]} == {found["step"] for found in ranks} == {len(SIZES)}


@each("name", CASES)
def test_the_bytes_of_a_rehearsal_are_those_of_all_real_ranks(real, name):
    _, ranks, rehearsed = both(name, real)
    assert_same_accounts(ranks, rehearsed)
    for direction in DIRECTIONS:
        assert (sum(rehearsed["accounts"][direction]["after"]) > 0) == (len(ranks) > 1)


@each("name", CASES)
def test_evaluation_records_nothing(real, name):
    _, ranks, rehearsed = both(name, real)
    for found in (*ranks, rehearsed):
        assert found["after evaluation"] == found["accounts"]


def test_one_that_is_alone_is_a_rehearsal_of_one_rank():
    for name, case in CASES.items():
        alone, rehearsed = run_sharded(case, 0, 1, one_rank()), rehearse(name, 1)
        assert_same_tables([alone], rehearsed["tables"], case.tables)
        assert_same_accounts([alone], rehearsed)


def test_the_cases_differ_where_they_should():
    """Or equality would say little: rows are trained, idle ones are not, codecs and divisions show."""
    trained = {name: rehearse(name, 3) for name in CASES}
    for name, found in trained.items():
        for table, before, after in zip(CASES[name].tables, found["first"], found["tables"], strict=True):
            assert torch.equal(before, after) == (table.name == "idle"), (name, table.name)
    for rough in ("bounded, adagrad", "bounded after a warm-up", "dithered forward", "fp16", "only forward"):
        for table, one, other in zip(
            MIXED, trained["exact, adagrad"]["tables"], trained[rough]["tables"], strict=True
        ):
            same = table.name in ("idle", *(("copied", "copied mean") if rough == "only forward" else ()))
            assert torch.equal(one, other) == same, (rough, table.name)
    name = "bounded, adagrad"
    for ranks in (2, 4):
        other = rehearse(name, ranks)
        assert not torch.equal(other["tables"][0], trained[name]["tables"][0])
        assert other["accounts"]["forward"]["after"] != trained[name]["accounts"]["forward"]["after"]


def test_evaluation_gives_the_rows_themselves_and_training_goes_on():
    case = CASES["bounded, one id each"]
    embeddings = RehearsedEmbeddings(ROWS, DIM, 3, policy=case.policy, seed=SEED)
    one_hot = case.batches()[0]
    exchange = embeddings.exchange
    base_T = torch.from_numpy(exchange.whole.base_T[:-1])
    rows_TB = one_hot.ids_L.view(len(ROWS), -1) + base_T[:, None]
    expected_BTD = exchange.weight_RD[rows_TB].transpose(0, 1)
    assert not torch.equal(embeddings(one_hot).detach(), expected_BTD)
    recorded = accounts_of(embeddings)
    embeddings.eval()
    assert torch.equal(embeddings(one_hot), expected_BTD)
    assert not embeddings(one_hot).requires_grad
    assert (accounts_of(embeddings), embeddings.step) == (recorded, 1)
    embeddings.train()
    embeddings(one_hot).sum().backward()
    assert embeddings.step == 2
    assert not torch.equal(exchange.weight_RD[rows_TB].transpose(0, 1), expected_BTD)


def test_memory_of_lookups_may_be_used_again_before_backward():
    trained = []
    for reuse in (False, True):
        embeddings = RehearsedEmbeddings(BAGS, DIM, 2, seed=SEED)
        lookups = lookups_of(BAGS, most=3, idle=IDLE)[0]
        out_BTD = embeddings(lookups)
        if reuse:
            lookups.ids_L.zero_()
            lookups.offsets.zero_()
        out_BTD.sum().backward()
        trained.append(embeddings.exchange.weight_RD)
    assert torch.equal(*trained)


def test_a_pooled_table_split_by_rows_is_refused_unless_there_is_one_rank():
    partial = [Table(name="a", rows=9), Table(name="partial", rows=9, send="pooled", sharding="row")]
    with pytest.raises(
        ConfigError,
        match=r"^rehearsal: table 'partial' is pooled and split by rows, which is not rehearsed; "
        r"choose sharding = 'table', or send = 'rows'$",
    ):
        RehearsedEmbeddings(partial, DIM, 2)
    lookups = Lookups.single(torch.tensor([[0, 1], [8, 8]]))
    assert RehearsedEmbeddings(partial, DIM, 1)(lookups).shape == (2, 2, DIM)


@pytest.mark.parametrize("offsets", [[0, 1, 2, 2, 3], [0, 1, 2, 4, 5]], ids=["no id", "two ids"])
def test_a_bag_of_other_than_one_id_for_a_pooled_table_is_refused(offsets):
    tables = [Table(name="a", rows=9), Table(name="b", rows=9, send="pooled")]
    embeddings = RehearsedEmbeddings(tables, DIM, 2)
    with pytest.raises(
        ConfigError,
        match=r"^rehearsal: pooled tables are rehearsed with one id in every bag; use send = 'rows'$",
    ):
        embeddings(Lookups(torch.zeros(offsets[-1], dtype=torch.int64), torch.tensor(offsets), 2))
    assert all(account.steps == 0 for account in embeddings.ledger.accounts.values())
    assert embeddings.step == 0


@pytest.mark.parametrize("ranks", [0, -1])
def test_a_rehearsal_of_no_ranks_is_refused(ranks):
    with pytest.raises(ConfigError, match=rf"^rehearsal.ranks: expected at least 1, got {ranks}$"):
        RehearsedEmbeddings(POOLED, DIM, ranks)


def test_a_plan_for_other_tables_is_refused():
    policy = FixedPolicy(ExchangePlan.exact(2))
    embeddings = RehearsedEmbeddings(POOLED, DIM, 2, policy=policy)
    with pytest.raises(PlanError, match=r"^rehearsal: expected a plan for 3 tables, got one for 2$"):
        embeddings(Lookups.single(torch.zeros(3, 4, dtype=torch.int64)))
