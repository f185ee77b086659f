"""Sharded embeddings in a user's own module: nothing of torch's machinery changes rows behind one's back."""

from __future__ import annotations

import copy
import gc
import re
import weakref

import pytest
import torch
from torch import nn

from laconic.adapt.policy import FixedPolicy
from laconic.codecs import Bounded, IdList
from laconic.errors import ConfigError, PlanError
from laconic.exchange import SGD, Table
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.lookups import Lookups
from laconic.nn import ShardedEmbeddings
from tests.distributed import own_modules
from tests.distributed.made import made
from tests.distributed.ranks import run_ranks
from tests.reduce.threads import in_threads

TABLES = [Table(name="a", rows=6), Table(name="b", rows=5)]


def lookups() -> Lookups:
    return Lookups.single(torch.tensor([[0, 1, 1], [4, 4, 2]]))


def train_once(embeddings: ShardedEmbeddings) -> None:
    embeddings(lookups()).sum().backward()


def test_ddp_leaves_every_ranks_shard_alone():
    (before, after), (other_before, other_after) = run_ranks(2, own_modules.wrap_in_ddp)
    assert torch.equal(before, after)
    assert torch.equal(other_before, other_after)
    assert not torch.equal(before, other_before)


def test_another_seed_gives_other_rows_and_no_two_tables_start_alike():
    many = [Table(name=f"t{t}", rows=4) for t in range(70)]
    embeddings = made(many, 2, seed=0)
    first = embeddings.engines[0].table_shard("t0")[1]
    assert all(not torch.equal(first, embeddings.engines[0].table_shard(f"t{t}")[1]) for t in range(1, 70))
    assert not torch.equal(first, made(many, 2, seed=5).engines[0].table_shard("t0")[1])
    assert torch.equal(first, made(many, 2, seed=0).engines[0].table_shard("t0")[1])
    with pytest.raises(ConfigError, match=r"embeddings.seed: expected 0 to 2\^63 - 1, got -1"):
        made(many, 2, seed=-1)


def test_a_state_dict_brings_back_rows_optimizer_and_step():
    trained = made(TABLES, 3, seed=1)
    train_once(trained)
    state = trained.state_dict()  # waits for the update
    loaded = made(TABLES, 3, seed=2)
    loaded.load_state_dict(state)
    assert torch.equal(loaded.engines[0].weight_RD, trained.engines[0].weight_RD)
    assert torch.equal(loaded.engines[0].state_R, trained.engines[0].state_R)
    assert loaded.engines[0].step == 1
    with pytest.raises(ConfigError, match=r"expected a shard of shape \(6, 3\)"):
        made(TABLES[:1], 3).load_state_dict(state)


def test_the_shard_of_another_rank_is_refused_and_one_that_does_not_say_whose_it_is_is_read():
    embeddings = made(TABLES, 3)
    state = embeddings.get_extra_state()
    expected = (
        "embeddings: expected the shard of rank 0 of 1, got that of rank 1 of 2; save state_dict() on every rank, "
        "in a file of its own, and load it there"
    )
    with pytest.raises(ConfigError, match=re.escape(expected)):
        embeddings.set_extra_state({**state, "rank": 1, "ranks": 2})
    embeddings.set_extra_state({key: state[key] for key in ("step", "weight", "state")})
    replicated = made([Table(name="a", rows=6, sharding="replicated")], 3)
    replicated.set_extra_state({**replicated.get_extra_state(), "rank": 1, "ranks": 2})


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("auto", "got 'auto'; write"),
        (FixedPolicy, "got the class FixedPolicy; write"),
        (ExchangePlan.exact(2), "got ExchangePlan(tables="),
    ],
    ids=["name", "class", "plan"],
)
def test_what_is_no_compression_is_refused_with_what_to_write(given, shown):
    with pytest.raises(ConfigError, match=re.escape(shown)) as caught:
        made(TABLES, 3, given)
    assert str(caught.value).startswith("embeddings.compression: expected a Compression, got ")
    assert str(caught.value).endswith("; write laconic.Compression(...)")


@pytest.mark.parametrize("given", ["bounded", Bounded, IdList()], ids=["name", "class", "ids"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_what_is_no_codec_of_rows_is_refused_with_what_to_write(given, direction):
    text = rf"plan: {direction}: expected a codec .+; write laconic\.Bounded\("
    with pytest.raises(ConfigError, match=text):
        TableCodecs(**{direction: given})


def test_converting_is_refused_and_a_conversion_to_the_same_is_not():
    embeddings = made(TABLES, 3)
    with pytest.raises(ConfigError, match="on the CPU and stay so"):
        embeddings.double()
    assert embeddings.float() is embeddings


def test_a_loader_may_reuse_its_memory():
    offsets = torch.tensor([0, 1, 3])
    ids = torch.tensor([0, 1, 2])
    table = [Table(name="a", rows=3)]
    kept, reused = made(table, 2, seed=1), made(table, 2, seed=1)
    weight = torch.tensor([1.0, 10.0])[:, None, None]
    (kept(Lookups(ids, offsets, 1)) * weight).sum().backward()
    out = reused(Lookups(ids, offsets, 1))
    offsets.copy_(torch.tensor([0, 3, 3]))
    (out * weight).sum().backward()
    kept.optimizer.step(), reused.optimizer.step()
    assert torch.equal(kept.engines[0].weight_RD, reused.engines[0].weight_RD)


def test_a_prefetched_batch_can_be_discarded():
    embeddings = made(TABLES, 3)
    first, second = lookups(), lookups()
    pending = embeddings.start(first)
    embeddings.prefetch(second)
    pending.wait().sum().backward()
    embeddings.eval()
    with (
        torch.no_grad(),
        pytest.raises(PlanError, match="prefetched to train, not to evaluate; discard_prefetched"),
    ):
        embeddings(second)
    embeddings.discard_prefetched()
    with torch.no_grad():
        embeddings(second)
    assert embeddings.engines[0].step == 1


def test_rows_are_waited_for_once():
    pending = made(TABLES, 3).start(lookups())
    pending.wait()
    with pytest.raises(PlanError, match="waited for before"):
        pending.wait()


def test_what_is_closed_says_so_and_is_freed():
    embeddings = made(TABLES, 3)
    train_once(embeddings)
    embeddings.close()
    with pytest.raises(PlanError, match="embeddings: closed"):
        embeddings(lookups())
    seen = weakref.ref(embeddings)
    del embeddings
    gc.collect()
    assert seen() is None


def test_a_plan_for_other_tables_is_refused():
    embeddings = made(TABLES, 3, policy=FixedPolicy(ExchangePlan.exact(3)))
    with pytest.raises(PlanError, match="expected a plan for 2 tables, got one for 3"):
        embeddings(lookups())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Lookups(torch.zeros(2), torch.tensor([0, 2]), 1),
            "lookups.ids_L: expected a 1-D tensor of int64",
        ),
        (lambda: Lookups(torch.tensor([1]), torch.tensor([], dtype=torch.int64), 1), "lookups.offsets"),
        (lambda: Lookups(torch.tensor([1]), torch.tensor([0, 1]), 0), "expected at least one table, got 0"),
        (
            lambda: Lookups.single(torch.tensor([1, 2])),
            r"expected ids of shape \(tables, samples\), got \(2,\)",
        ),
    ],
)
def test_lookups_that_cannot_be_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_narrow_and_strided_ids_are_widened():
    ids = torch.arange(8, dtype=torch.int32)[::2]
    made = Lookups(ids, torch.arange(5, dtype=torch.int32), 1)
    assert made.ids_L.dtype == made.offsets.dtype == torch.int64
    assert made.ids_L.tolist() == [0, 2, 4, 6]


def test_a_second_backward_of_one_batch_is_refused():
    embeddings = made(TABLES, 3)
    loss = embeddings(lookups()).sum()
    loss.backward(retain_graph=True)
    once = embeddings.state_dict()["_extra_state"]["weight"].clone()
    with pytest.raises(
        PlanError, match=r"expected one backward for a batch, got another.+ sum of all losses"
    ):
        loss.backward()
    embeddings.optimizer.step()
    assert torch.equal(embeddings.engines[0].weight_RD, once)
    train_once(embeddings)


def test_what_is_shown_of_embeddings_says_what_they_are():
    assert repr(made(TABLES, 3)) == (
        "ShardedEmbeddings(2 tables, 11 rows, dim=3, dtype=torch.float32, "
        "optimizer=EmbeddingOptimizer(RowwiseAdagrad, lr=0.02, fused=True), rank 0 of 1)"
    )


@pytest.mark.parametrize(
    "settings",
    [{}, {"optimizer": SGD(0.5), "dtype": torch.float64, "hot": {"a": [1, 4]}}],
    ids=["plain", "hot rows"],
)
def test_a_deep_copy_trains_on_by_itself(settings):
    embeddings = made(TABLES, 3, seed=1, policy=FixedPolicy(ExchangePlan.exact(2)), **settings)
    train_once(embeddings)
    embeddings.optimizer.param_groups[0]["lr"] = 0.3
    module = nn.ModuleDict({"first": embeddings, "again": embeddings}).eval()
    copied = copy.deepcopy(module)
    assert copied["first"] is copied["again"]
    other = copied["first"]
    assert other.engines[0].policy is not embeddings.engines[0].policy
    assert not other.training
    before = embeddings.engines[0].weight_RD.clone()
    assert torch.equal(other.engines[0].weight_RD, before)
    train_once(other.train())
    other.optimizer.step()
    assert torch.equal(embeddings.engines[0].weight_RD, before)
    train_once(embeddings.train())
    embeddings.optimizer.step()
    assert torch.equal(embeddings.engines[0].weight_RD, other.engines[0].weight_RD)
    assert (embeddings.engines[0].step, embeddings.optimizer.lr) == (
        other.engines[0].step,
        other.optimizer.lr,
    )
    other.close()
    train_once(embeddings)


def test_every_rank_can_copy():
    def run(world):
        embeddings = made(TABLES, 3, seed=1, world=world)
        train_once(embeddings)
        other = copy.deepcopy(embeddings)
        train_once(other)
        other.optimizer.step()
        train_once(embeddings)
        embeddings.optimizer.step()
        return embeddings.engines[0].weight_RD, other.engines[0].weight_RD

    for weight, copied in in_threads(2, run):
        assert torch.equal(weight, copied)
