"""What a place costs is what the exchange is expected to send."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from laconic.cost.link import message_bytes
from laconic.cost.load import Place, Resource
from laconic.cost.topology import Cluster
from laconic.cost.workload import RowCoding
from tests.cases import each
from tests.oracle.expectation import expected_traffic
from tests.oracle.part import Holding, Part
from tests.plan.problems import problem, table

RANKS, BATCH = 4, 256


def _parts(load, choice):
    holding = {
        "row": lambda: Holding.dealt(RANKS),
        "table": lambda: Holding.whole(RANKS, choice.owner),
        "replicated": lambda: Holding.everywhere(RANKS),
    }[choice.sharding]()
    whole = Part(
        table=load.name,
        frequencies=load.frequencies,
        holding=holding,
        dim=16,
        send=choice.send,
        id_order=load.id_order,
        forward_row_bytes=64 / load.forward.ratio,
        backward_row_bytes=64 / load.backward.ratio,
    )
    if not choice.hot:
        return [whole]
    hot, rest = load.frequencies.cut(choice.hot)
    return [
        replace(whole, frequencies=rest),
        replace(whole, frequencies=hot, holding=Holding.everywhere(RANKS)),
    ]


@each("bag", [1.0, 7.5])
@each(
    "choice",
    [
        Place("row"),
        Place("row", "pooled"),
        Place("table", owner=2),
        Place("table", "pooled", owner=2),
        Place("replicated"),
        Place("row", hot=40),
        Place("table", owner=2, hot=40),
    ],
)
def test_bytes_are_those_that_the_theory_expects(choice, bag):
    load = table("t", 3000, bag=bag, forward=4.0, backward=2.0)
    small = problem([load], batch=BATCH)
    found_KN = small.total_KN([choice])
    expected = expected_traffic(_parts(load, choice), BATCH)
    directions = {
        Resource.IDS_OUT: expected.ids,
        Resource.FORWARD_OUT: expected.forward,
        Resource.BACKWARD_OUT: expected.backward,
    }
    empty_lists = 4 * (RANKS - 1)  # theory counts those that say that nothing is wanted
    for first, flow in directions.items():
        links_NN = flow.links_NN
        # lists of ids of a part are taken to be coded as well as those of the whole table
        tolerance = {"rtol": 1e-9, "atol": 0}
        if first == Resource.IDS_OUT:
            tolerance = {"rtol": 0.35 if choice.hot else 1e-9, "atol": empty_lists}
        np.testing.assert_allclose(found_KN[first], links_NN.sum(axis=1), **tolerance)
        np.testing.assert_allclose(found_KN[first + 1], links_NN.sum(axis=0), **tolerance)
        away = first == Resource.FORWARD_OUT
        lane = (links_NN if away else links_NN.T).max(axis=1)
        if choice.owner is None:
            np.testing.assert_allclose(found_KN[first + 2], lane, **tolerance)
        else:
            np.testing.assert_allclose(found_KN[first + 2, 2], lane[2], **tolerance)


@each(
    ("choice", "ram", "files"),
    [
        (Place("row"), [250 * 68] * 4, [0] * 4),
        (Place("row", cold=True, hot=10), [10 * 68] * 4, [250 * 68] * 4),
        (Place("row", cold=True, hot=10, warm=40), [20 * 68] * 4, [250 * 68] * 4),
        (Place("table", cold=True, owner=1, hot=10, warm=40), [680, 50 * 68, 680, 680], [0, 999 * 68, 0, 0]),
        (Place("table", owner=1, hot=10), [10 * 68, 1009 * 68, 10 * 68, 10 * 68], [0] * 4),
        (Place("replicated"), [999 * 68] * 4, [0] * 4),
    ],
)
def test_memory_is_rows_and_their_state(choice, ram, files):
    found_KN = problem([table("t", 999)]).spread_KN(0, choice)
    assert found_KN[Resource.RAM].tolist() == ram
    assert found_KN[Resource.FILE_SPACE].tolist() == files


@each("kind", [Place("row", cold=True), Place("table", cold=True)])
def test_hot_and_warm_rows_are_not_read_from_files(kind):
    small = problem([table("t", 999)], batch=16)

    def read(hot, warm):
        return small.spread_KN(
            0, replace(kind, owner=0 if kind.sharding == "table" else None, hot=hot, warm=warm)
        )

    files = [
        read(hot, warm)[Resource.FILES, 0] for hot, warm in ((0, 0), (50, 0), (0, 50), (20, 30), (9, 990))
    ]
    assert files[0] > 1.4 * files[1] > 0
    assert files[1] == files[2] == files[3]
    assert files[4] == pytest.approx(0, abs=1e-6)


def test_a_warm_row_sends_what_a_cold_one_does():
    small = problem([table("t", 999)])
    cold, warm = (small.spread_KN(0, Place("row", cold=True, warm=rows)) for rows in (0, 40))
    other = np.setdiff1d(np.arange(len(Resource)), [Resource.RAM, Resource.FILES])
    assert (cold[other] == warm[other]).all()


def test_copies_that_are_synchronized_seldom_send_less():
    choice = Place("row", hot=50)
    often, seldom = (problem([table("t", 999)], hot_every=every).load(0, choice).sent.hot for every in (1, 8))
    assert seldom < 0.3 * often


@each("ranks", [2, 4])
def test_gradients_of_copies_are_coded_also_where_owners_sum_them(ranks):
    cluster = Cluster.alike(ranks, memory_gb=1, mbps=1000, step_ms=1)
    plain = table("t", 200, exponent=0.1)  # a batch looks up all of it on every rank
    exact, lossless, coded = (
        problem([replace(plain, backward=coding)], cluster).spread_KN(0, Place("replicated"))
        for coding in (RowCoding(), RowCoding(ratio=1.25, lossless=True), RowCoding(ratio=1.25))
    )
    sent = [load_KN[Resource.BACKWARD_OUT, 0] for load_KN in (exact, lossless, coded)]
    header = message_bytes(1, ranks) - message_bytes(0, ranks)
    assert (sent[1] - header) * 1.25 == pytest.approx(sent[0] - header)
    assert sent[2] == sent[1]
    assert lossless[Resource.CPU, 0] > exact[Resource.CPU, 0]


def test_gradients_of_copies_do_not_grow_with_ranks_once_all_rows_are_looked_up():
    whole = table("t", 200, exponent=0.1)
    few, many = (
        problem([whole], Cluster.alike(n, memory_gb=1, mbps=1000, step_ms=1)).load(0, Place("replicated"))
        for n in (16, 256)
    )
    assert many.sent.backward <= 1.1 * few.sent.backward


def test_the_codec_of_dense_gradients_is_not_hidden():
    choices = [Place("row")]
    without, with_codec = (
        problem([table("t", 999)], dense_codec_s=seconds, overlap=1.0).step(choices)
        for seconds in (0.0, 0.25)
    )
    assert with_codec.step_s == pytest.approx(without.step_s + 0.25)
    assert with_codec.wire_s == without.wire_s


def test_dense_gradients_travel_beside_the_backward_pass_and_what_is_left_counts():
    cluster = Cluster.alike(4, memory_gb=1, mbps=1000, step_ms=10)
    choices, given = (
        [Place("row")],
        {"overlap": 0.0, "dense_bytes": 1e6},
    )  # 12 ms along a ring of four, and latency
    none, some, all_of_it = (
        problem([table("t", 999)], cluster, dense_overlap=share, **given).step(choices)
        for share in (0.0, 0.4, 1.0)
    )
    assert none.phases["dense"] == pytest.approx(0.012, rel=0.1)
    assert some.step_s == pytest.approx(none.step_s - 0.004)
    assert some.phases["dense"] == pytest.approx(none.phases["dense"] - 0.004)
    assert all_of_it.step_s == pytest.approx(none.step_s - 0.010)  # no more than is computed
    long = problem([table("t", 999)], cluster, dense_overlap=1.0, overlap=0.0, dense_bytes=1e5).step(choices)
    assert long.phases["dense"] == 0.0  # and no more than there is
