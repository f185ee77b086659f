"""Batches ahead of their turn, several at a time, empty ones: order matters, misuse is an error."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch

from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows
from laconic.errors import ConfigError, PlanError
from laconic.exchange import SGD, Table
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.lookups import Lookups
from tests.distributed.made import made
from tests.distributed.ranks import run_ranks

TABLES = [Table(name="a", rows=9, sharding="row"), Table(name="b", rows=5, sharding="replicated")]
BOUNDED = TableCodecs(BoundedRows(0.1), BoundedRows(0.1, rounding="unbiased"))


def batch(first, samples=4):
    return Lookups.single((torch.arange(samples) + first).repeat(2, 1) % 5)


def embeddings_of(tables=TABLES, **options):
    return made(tables, 4, optimizer=SGD(0.5), seed=1, **options)


def _in_order(rank, ranks):
    """All that several ranks must agree in; returns what each scenario gave."""
    found = {}
    one, two, three = batch(rank), batch(rank + 1), batch(rank + 2)

    def train(embeddings, lookups):
        embeddings(lookups).square().sum().backward()
        embeddings.optimizer.step()

    plain, ahead = embeddings_of(), embeddings_of()
    for lookups in (one, two, three):
        train(plain, lookups)
    for lookups in (one, two, three):
        ahead.prefetch(lookups)
    for lookups in (one, two, three):
        train(ahead, lookups)
    found["all prefetched"] = torch.equal(plain.engines[0].weight_RD, ahead.engines[0].weight_RD)

    # two batches under way at once, and a third prefetched: it gets rows that both have updated
    pair, late = embeddings_of(), embeddings_of()
    for embeddings in (pair, late):
        pending = [embeddings.start(one), embeddings.start(two)]
        if embeddings is pair:
            embeddings.prefetch(three)
        sum(entry.wait().square().sum() for entry in pending).backward()
        embeddings.optimizer.step()
    found["two at once"] = torch.equal(pair(three), late(three))

    # evaluation between batches, where none is prefetched
    pair.eval()
    with torch.no_grad():
        found["evaluation"] = torch.equal(pair(one), pair(one))
    pair.train()
    train(pair, two)

    # nobody has a sample
    empty = batch(0, samples=0)
    before = plain.engines[0].weight_RD.clone()
    pending = plain.start(empty)
    rows = pending.wait()
    rows.sum().backward()
    found["empty"] = (tuple(rows.shape), pending.global_samples, plain.engines[0].pipeline.finish())
    found["empty changes nothing"] = torch.equal(before, plain.engines[0].weight_RD)

    group = plain.engines[0].ranks[0].ids.transport._group
    found["patience"] = group._get_backend(torch.device("cpu")).options._timeout
    return found


def test_ranks_agree_about_batches_ahead_of_their_turn():
    for found in run_ranks(2, _in_order):
        assert found == {
            "all prefetched": True,
            "two at once": True,
            "evaluation": True,
            "empty": ((0, 2, 4), 0, 0),
            "empty changes nothing": True,
            "patience": timedelta(seconds=60),  # that of the group that run_ranks makes, not torch's own
        }


def test_a_batch_out_of_the_order_of_prefetch_is_an_error_and_the_right_one_may_follow():
    embeddings = embeddings_of()
    one, two = batch(0), batch(1)
    embeddings.prefetch(one)
    embeddings.prefetch(two)
    for wrong in (two, batch(0)):
        with pytest.raises(
            PlanError,
            match=r"^embeddings: another batch was prefetched; start the same objects in the order",
        ):
            embeddings.start(wrong)
    embeddings(one).sum().backward()
    with pytest.raises(PlanError, match=r"^embeddings: another batch was prefetched"):
        embeddings.start(one)
    embeddings(two).sum().backward()
    assert embeddings.engines[0].pipeline.finish() > 0
    assert embeddings.engines[0].step == 2


def test_evaluation_between_a_prefetch_and_its_batch_is_an_error():
    embeddings, one, two = embeddings_of(), batch(0), batch(1)
    pending = embeddings.start(one)
    embeddings.prefetch(two)
    pending.wait().sum().backward()
    embeddings.eval()
    with pytest.raises(PlanError, match=r"^embeddings: another batch was prefetched"):
        embeddings.start(batch(3))
    embeddings.train()
    assert embeddings(two).shape == (4, 2, 4)


def test_the_plan_of_a_batch_is_that_of_its_step_wherever_it_was_prefetched():
    """One rank encodes its replicas' gradients only, so a plan shows in the update."""
    plan = ExchangePlan((BOUNDED, BOUNDED))
    embeddings = embeddings_of(policy=FixedPolicy(plan, warmup_steps=1))
    one, two = batch(0), batch(1)
    pending = embeddings.start(one)
    embeddings.prefetch(two)
    assert pending._fetched.manner.plan == ExchangePlan.exact(2)
    pending.wait().sum().backward()
    assert embeddings.start(two)._fetched.manner.plan is plan


def test_a_table_that_nobody_looks_up_does_not_change():
    embeddings = embeddings_of()
    before = embeddings.engines[0].weight_RD.clone()
    ids_L, offsets = torch.tensor([3, 3, 1]), torch.tensor([0, 1, 3, 3, 3])  # two samples, none for table b
    out_BTD = embeddings(Lookups(ids_L, offsets, 2))
    assert torch.equal(out_BTD[:, 1], torch.zeros(2, 4))
    out_BTD.sum().backward()
    assert embeddings.engines[0].pipeline.finish() == 2
    changed = (embeddings.engines[0].weight_RD != before).any(1).nonzero().flatten().tolist()
    assert changed == [1, 3]


def test_one_table_on_one_rank_is_an_embedding_bag():
    embeddings = embeddings_of([Table(name="only", rows=9, pooling="mean")])
    weight_RD = embeddings.engines[0].weight_RD.clone().requires_grad_()
    ids_L, offsets = torch.tensor([0, 8, 8, 2]), torch.tensor([0, 3, 3, 4])
    bags = torch.nn.functional.embedding_bag(ids_L, weight_RD, offsets[:-1], mode="sum")
    expected = bags * torch.tensor([[1 / 3], [1.0], [1.0]])
    out_BTD = embeddings(Lookups(ids_L, offsets, 1))
    assert torch.allclose(out_BTD[:, 0], expected, rtol=0, atol=3 * 2**-24)  # sums of three values below one
    out_BTD.sum().backward()
    expected.sum().backward()
    embeddings.optimizer.step()
    updated = weight_RD.detach() - 0.5 * weight_RD.grad
    assert torch.allclose(embeddings.engines[0].weight_RD, updated, rtol=0, atol=4 * 2**-24)
    assert embeddings.report().ratio == 1
    assert all(account.sent == 0 for account in embeddings.engines[0].ledger.accounts.values())


@pytest.mark.parametrize(
    ("lookups", "message"),
    [
        (Lookups(torch.tensor([0]), torch.tensor([0, 1]), 1), r"^lookups: expected 2 tables, got 1$"),
        (
            Lookups(torch.tensor([0]), torch.tensor([0, 1, 2]), 2),
            r"^lookups: expected offsets that rise from 0 to 1",
        ),
        (
            Lookups(torch.tensor([0, 5]), torch.tensor([0, 1, 2]), 2),
            r"^lookups: table 'b' has 5 rows, got id 5 in sam",
        ),
        (
            Lookups(torch.tensor([-1, 0]), torch.tensor([0, 1, 2]), 2),
            r"^lookups: table 'a' has 9 rows, got id -1 in ",
        ),
    ],
)
def test_lookups_that_cannot_be_are_refused(lookups, message):
    with pytest.raises(ConfigError, match=message):
        embeddings_of()(lookups)
