"""Expected traffic against counting: random batches, and what the exchange itself would send."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laconic.codecs import IdList
from laconic.cost.frequencies import Frequencies
from laconic.cost.link import message_bytes
from laconic.data.synthetic import TERABYTE_ROWS, Synthetic, SyntheticSettings
from laconic.errors import PlanError
from laconic.exchange import SGD, Layout, Table
from laconic.exchange.routing import Request
from laconic.exchange.tables.copies import HotRows
from laconic.lookups import Lookups
from tests.cases import each
from tests.distributed.made import made_local
from tests.oracle.expectation import expected_traffic
from tests.oracle.part import Holding, Part, holding_of

ZIPF = 1.05
ROWS = (3, 60, 900, 12_000, 200_000)
SAMPLES = 512
DIM = 16


def part(frequencies: Frequencies, holding: Holding, **more) -> Part:
    return Part(table="t", frequencies=frequencies, holding=holding, dim=DIM, **more)


HOLDINGS = {
    "whole": Holding.whole(5, 3),
    "dealt unequally": Holding.dealt(5, [3, 0, 1, 1, 5]),
    "a copy in each of two groups": Holding(
        np.array([[0.5, 0.5, 0, 0, 0], [0, 0, 1 / 3, 1 / 3, 1 / 3]]), np.array([0, 0, 1, 1, 1])
    ),
    "one copy, read and kept apart": Holding(
        np.array([[1, 0, 0, 0, 0], [0, 0, 0.5, 0.5, 0]]), np.array([0, 0, 1, 1, 0])
    ),
}


@each("name", HOLDINGS)
def test_any_placement_sends_what_random_batches_do(name):
    """Rows are placed at random as the holding says; each transfer is counted row by row.

    Of what is on every rank, owners sum gradients: the next test.
    """
    holding, samples_N, trials = HOLDINGS[name], [40, 5, 0, 100, 64], 150
    frequencies = Frequencies.zipf(200, 0.9, lookups_per_sample=2.0)
    probability_R = np.repeat(frequencies.probability_G, frequencies.count_G)
    rng = np.random.default_rng(0)
    forward, backward = np.zeros((5, 5)), np.zeros((5, 5))
    for _ in range(trials):
        holder_CR = np.array([rng.choice(5, 200, p=share / share.sum()) for share in holding.share_CN])
        for j, samples in enumerate(samples_N):
            needed = np.unique(rng.choice(200, 2 * samples, p=probability_R / probability_R.sum()))
            np.add.at(forward, (holder_CR[holding.reads_N[j], needed], j), 1)
            for holder_R in holder_CR:
                np.add.at(backward, (j, holder_R[needed]), 1)
    expected = expected_traffic([part(frequencies, holding)], samples_N)
    for counted, flow in ((forward, expected.forward), (backward, expected.backward)):
        counted[np.arange(5), np.arange(5)] = 0
        mean = counted / trials
        # a sum of indicators has a variance below its mean; a row's placement adds as much again
        assert (np.abs(mean - flow.rows_NN) <= 5 * np.sqrt(2 * flow.rows_NN / trials) + 1e-9).all()
        assert np.allclose(flow.bytes_NN, 4 * DIM * flow.rows_NN)


def test_gradients_of_copies_go_to_owners_who_send_sums_to_all():
    samples_N, trials = [40, 5, 0, 100, 64], 150
    frequencies = Frequencies.zipf(60, 0.9, lookups_per_sample=2.0)
    probability_R = np.repeat(frequencies.probability_G, frequencies.count_G)
    rng = np.random.default_rng(0)
    counted = np.zeros((5, 5))
    for _ in range(trials):
        owner_R, united = rng.integers(5, size=60), set()
        for j, samples in enumerate(samples_N):
            needed = np.unique(rng.choice(60, 2 * samples, p=probability_R / probability_R.sum()))
            np.add.at(counted, (j, owner_R[needed]), 1)
            united.update(needed.tolist())
        counted += np.bincount(owner_R[sorted(united)], minlength=5)[:, None]
    counted[np.arange(5), np.arange(5)] = 0
    copies = part(frequencies, Holding.everywhere(5))
    expected = expected_traffic([copies], samples_N).backward.rows_NN
    assert (np.abs(counted / trials - expected) <= 5 * np.sqrt(2 * expected / trials) + 1e-9).all()
    rare = part(Frequencies.uniform(10**6), Holding.everywhere(5))  # nobody needs what another does
    assert expected_traffic([rare], 10).backward.rows_NN[0, 1] == pytest.approx((10 + 50) / 5, rel=1e-3)


def test_a_table_in_two_parts_sends_in_all_what_its_rows_need():
    frequencies = Frequencies.zipf(5000, 1.0)
    head, tail = frequencies.cut(100)
    whole = expected_traffic([part(frequencies, Holding.dealt(4))], 256).forward.rows_NN
    two = expected_traffic([part(piece, Holding.dealt(4)) for piece in (head, tail)], 256).forward.rows_NN
    assert np.allclose(whole, two)
    hot_rows = part(head, Holding.everywhere(4))
    hot = expected_traffic([hot_rows, part(tail, Holding.dealt(4))], 256)
    assert hot.forward.total < whole.sum() * 4 * DIM
    assert (
        hot.backward.rows_NN.sum() > whole.sum()
    )  # which is why copies of hot rows do not pay by themselves


def test_ranks_that_lack_everything_send_nothing():
    alone = expected_traffic([part(Frequencies.uniform(9), Holding.dealt(1))], 10)
    assert (alone.total, alone.links_NN.tolist()) == (0.0, [[0.0]])
    idle = expected_traffic([part(Frequencies.uniform(9), Holding.dealt(3))], 0, coded_ids=False)
    assert idle.forward.rows_NN.sum() == 0
    assert idle.total == 6 * (message_bytes(2, 2) + 2 * message_bytes(1, 2))


def tables(placement: str) -> list[Table]:
    def one(t: int, rows: int) -> Table:
        if placement == "whole tables, pooled":
            return Table(name=f"c{t}", rows=rows, send="pooled")
        if placement == "rows dealt" or rows > 1000:
            return Table(name=f"c{t}", rows=rows, sharding="row")
        return Table(name=f"c{t}", rows=rows, sharding="replicated")

    return [one(t, rows) for t, rows in enumerate(ROWS)]


@each("ranks", [2, 4, 8])
@each("placement", ["whole tables, pooled", "rows dealt", "small tables replicated"])
def test_the_ledger_of_all_ranks_is_predicted_within_five_percent(ranks, placement):
    """Compare directions and tables; headers of lists are known only roughly."""
    steps, made = 6, tables(placement)
    embeddings = made_local(made, DIM, ranks, optimizer=SGD(0.1))
    source = Synthetic(SyntheticSettings(rows=ROWS, zipf=ZIPF, samples=SAMPLES * ranks * steps))
    for batch in source.batches("train", global_batch=SAMPLES * ranks, rank=0, ranks=1):
        embeddings(batch.lookups).sum().backward()
        embeddings.optimizer.step()
    parts = [
        Part(table=table.name, frequencies=Frequencies.zipf(table.rows, ZIPF), dim=DIM, send=table.send,
             holding=holding_of(table.sharding, ranks, int(embeddings.engines[0].layout.first_T[t])))
        for t, table in enumerate(made)
    ]  # fmt: skip
    traffic = expected_traffic(parts, SAMPLES)
    lists = ranks * (ranks - 1)
    for direction, flow in (
        ("ids", traffic.ids),
        ("forward", traffic.forward),
        ("backward", traffic.backward),
    ):
        account = embeddings.engines[0].ledger.accounts[direction]
        assert account.steps == steps
        # where a rank has nothing for another, a head is 4 to 8 bytes a table smaller than reckoned
        assert flow.total == pytest.approx(account.sent / steps, rel=0.05, abs=8 * len(made) * lists)
        assert flow.bytes_P == pytest.approx(
            account.after_T / steps, rel=0.05, abs=10 * lists if direction == "ids" else 1
        )


@each("sharding", ["row", "table"])
def test_bags_of_pooled_tables_are_predicted_too(sharding):
    """Against what the engine asks for: ids, lengths, one vector a sample."""
    ranks, samples, mean, rows = 4, 600, 3.0, 5000
    rng = np.random.default_rng(0)
    lengths = rng.poisson(mean, samples)
    probability = Frequencies.zipf(rows, 1.0, lookups_per_sample=mean)
    chance_R = np.repeat(probability.probability_G, probability.count_G)
    ids = rng.choice(rows, lengths.sum(), p=chance_R / chance_R.sum())
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    layout = Layout((Table(name="t", rows=rows, sharding=sharding, send="pooled"),), ranks, 3)
    lookups = Lookups(torch.tensor(ids), torch.tensor(offsets), 1)
    request = Request.of(lookups, layout, HotRows(layout.tables))
    others = [0, 1, 2]
    made = part(probability, holding_of(sharding, ranks, int(layout.first_T[0])), send="pooled")
    traffic = expected_traffic([made], samples)
    assert traffic.ids.rows_NN[3, others].sum() == pytest.approx(
        request.lists.counts_NT[others].sum(), rel=0.1
    )
    assert traffic.forward.rows_NN[others, 3].tolist() == request.answers_NT[others, 0].tolist()
    assert traffic.backward.rows_NN[3, others].tolist() == request.gradients_NT[others, 0].tolist()
    asked = request.lists
    ids_N = np.split(asked.ids, np.cumsum(asked.counts_NT[:-1, 0]))
    lengths_N = np.split(asked.lengths, np.cumsum(asked.length_counts_NT[:-1, 0]))
    sent = sum(
        len(IdList().encode(torch.tensor(lists[rank]))) for rank in others for lists in (ids_N, lengths_N)
    )
    assert traffic.ids.bytes_NN[3, others].sum() == pytest.approx(sent, rel=0.05)


def test_two_hundred_million_rows_are_quick():
    """That it takes no time is a benchmark's affair; that it takes no memory shows here."""
    parts = [part(Frequencies.zipf(rows, ZIPF), Holding.dealt(16)) for rows in TERABYTE_ROWS]
    assert sum(len(p.frequencies.count_G) for p in parts) < 100_000
    assert expected_traffic(parts, 2048).total > 0


def test_what_cannot_be_is_refused():
    uniform = Frequencies.uniform(5)
    for make, message in (
        (lambda: expected_traffic([], 1), "at least one part"),
        (
            lambda: expected_traffic([part(uniform, Holding.dealt(2)), part(uniform, Holding.dealt(3))], 1),
            "got 3 for 't'",
        ),
        (
            lambda: expected_traffic([part(uniform, Holding.dealt(2))], -1),
            "samples >= 0 for each of 2 devices, got -1",
        ),
        (lambda: Holding.whole(2, 2), "owner 2 is not one of 2 devices"),
        (lambda: Holding.dealt(2, [0, 0]), "some of them positive"),
        (lambda: Holding(np.array([[0.5, 0.4]]), np.zeros(2)), "add up to 1"),
        (lambda: Holding(np.array([[0.5, 0.5]]), np.array([0, 1])), "one of 1 copies"),
        (lambda: part(uniform, Holding.dealt(2), send="row"), "send 'rows' or 'pooled'"),
        (
            lambda: part(uniform, Holding.dealt(2), forward_row_bytes=float("nan")),
            "forward_row_bytes as a finite number",
        ),
        (lambda: part(uniform, Holding.dealt(2), correlation=0), "correlation > 0, got 0"),
        (lambda: holding_of("column", 2), "no such sharding 'column'"),
    ):
        with pytest.raises(PlanError, match=message):
            make()
