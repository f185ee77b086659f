"""Scales of tables: all ranks agree on them, and bounds do not depend on how many ranks there are.

Shapes: ``P`` parts (tables), ``R`` rows, ``D`` dimensions, ``B`` samples, ``T`` tables.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows, Cast, Lossless
from laconic.exchange import SGD, Table
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.exchange.noise import NoiseCount
from laconic.exchange.ranks.stages import finish, in_step
from laconic.exchange.ranks.world import LocalWorld
from laconic.exchange.scales import Scales, TableScales, agrees_after
from laconic.lookups import Lookups
from tests.cases import each
from tests.distributed.made import made_local

DIM = 8
SAMPLES = 48
TABLES = [Table(name="split", rows=96, sharding="row"), Table(name="whole", rows=96)]
ROWS = BoundedRows(0.01, relative_to="range")
GRADIENTS = BoundedRows(0.1, relative_to="rms", rounding="unbiased")
BOUNDED = TableCodecs(ROWS, GRADIENTS)
EXACT = TableCodecs()


def plan_of(codecs, tables=2):
    return ExchangePlan((codecs,) * tables)


def made(ranks, codecs, *, all_remote=True, tables=TABLES, **options):
    policy = FixedPolicy(plan_of(codecs, len(tables)))
    return made_local(tables, DIM, ranks, optimizer=SGD(0.5), policy=policy, all_remote=all_remote, **options)


def ids_once(step):
    """Ids of a batch that looks up every id at most once, so that no two ranks share a row."""
    generator = torch.Generator().manual_seed(step)
    return torch.stack([torch.randperm(96, generator=generator)[:SAMPLES] for _ in TABLES])


def train(embeddings, ids_TB, weight_BTD=None):
    """Take a step whose gradients are given numbers; returns what was looked up."""
    out_BTD = embeddings(Lookups.single(ids_TB))
    if weight_BTD is None:
        weight_BTD = torch.linspace(-1, 1, out_BTD.numel()).view_as(out_BTD)
    (out_BTD * weight_BTD).sum().backward()
    embeddings.optimizer.step()
    return out_BTD.detach()


def scales_of(embeddings):
    return [rank.rows.scales for rank in embeddings.engines[0].ranks]


def figures(scales):
    return [scales.range_P.tolist(), scales.rms_P.tolist(), scales.rows_P.tolist()]


# ---- agreement on what was sent -----------------------------------------------------------------


@each("ranks", [1, 2, 3])
@each("all_remote", [True, False])
def test_after_every_step_all_ranks_have_equal_scales(ranks, all_remote):
    embeddings = made(ranks, BOUNDED, all_remote=all_remote)
    for step in range(5):
        train(embeddings, ids_once(step))
        first, *others = [scales.state() for scales in scales_of(embeddings)]
        assert first["agreed"].keys() == {"forward", "backward"}
        for other in others:
            assert other["agreed"] == first["agreed"]
            assert other["noise"] == first["noise"]
    # after steps 1, 2 and 4
    assert {scales.agreements for scales in scales_of(embeddings)} == {3}


@each("ranks", [1, 2, 3])
def test_scales_are_those_of_all_rows_and_gradients_that_were_sent(ranks):
    embeddings = made(ranks, BOUNDED)
    ids_TB, weight_BTD = ids_once(0), torch.randn(SAMPLES, len(TABLES), DIM)
    tables = [embeddings.engines[0].table_shard(table.name)[1].clone() for table in TABLES]
    train(embeddings, ids_TB, weight_BTD)
    sent = {
        "forward": [rows_RD[ids_B] for rows_RD, ids_B in zip(tables, ids_TB, strict=True)],
        "backward": list(weight_BTD.unbind(1)),
    }
    for direction, sent_P in sent.items():
        scales = scales_of(embeddings)[0].of(direction)
        assert scales.range_P.tolist() == [float(x.max().double() - x.min().double()) for x in sent_P]
        # sums of as many squares differ by their order at most
        tolerance = sent_P[0].numel() * np.finfo(np.float64).eps
        expected_P = [float(x.double().square().mean().sqrt()) for x in sent_P]
        np.testing.assert_allclose(scales.rms_P, expected_P, rtol=tolerance, atol=0)
        assert scales.rows_P.tolist() == [SAMPLES] * 2


def test_bounds_are_shares_of_blocks_first_and_absolute_from_the_second_step_on():
    embeddings, plan = made(2, BOUNDED), plan_of(BOUNDED)
    (scales, _) = scales_of(embeddings)
    assert scales.of("forward") is None
    assert scales.codecs(plan, "forward") == [ROWS] * 2
    assert scales.codecs(plan, "backward") == [GRADIENTS] * 2
    train(embeddings, ids_once(0))
    rows, gradients = scales.of("forward"), scales.of("backward")
    assert scales.codecs(plan, "forward") == [BoundedRows(0.01 * range_) for range_ in rows.range_P]
    assert scales.codecs(plan, "backward") == [
        BoundedRows(0.1 * rms, rounding="unbiased") for rms in gradients.rms_P
    ]


@each("ranks", [1, 2, 3])
def test_what_arrives_is_within_the_agreed_bound(ranks):
    """Of the steps after the agreement; with all rows in one block, and in many."""
    embeddings = made(ranks, TableCodecs(ROWS, None))
    train(embeddings, ids_once(0))
    bounds = [codec.bound for codec in scales_of(embeddings)[0].codecs(plan_of(BOUNDED), "forward")]
    ids_TB = ids_once(1)
    tables = [embeddings.engines[0].table_shard(table.name)[1].clone() for table in TABLES]
    out_BTD = train(embeddings, ids_TB)
    for t, rows_RD in enumerate(tables):
        error = (out_BTD[:, t].double() - rows_RD[ids_TB[t]].double()).abs().max()
        assert 0 < error <= bounds[t]


def test_bounds_and_what_they_make_of_rows_do_not_depend_on_the_number_of_ranks():
    """Every id is looked up once and gradients are given numbers, so the rows are the same ones.

    Codes are of one grid. Only which few values of a block are stored exactly depends on the block.
    """
    found, codecs = [], TableCodecs(ROWS, None)
    for ranks in (1, 2, 3):
        embeddings = made(ranks, codecs)
        train(embeddings, ids_once(0))  # bounds are shares of blocks
        outputs = []
        for step in range(1, 4):
            ids_TB = ids_once(step)
            tables = [embeddings.engines[0].table_shard(table.name)[1] for table in TABLES]
            rows_BTD = torch.stack([rows[ids] for rows, ids in zip(tables, ids_TB, strict=True)], dim=1)
            outputs.append((rows_BTD, train(embeddings, ids_TB)))
        scales = scales_of(embeddings)[0]
        bounds = scales.codecs(plan_of(codecs), "forward")
        found.append((scales.of("forward"), scales.of("backward"), bounds, outputs))
    first, *others = found
    for other in others:
        assert other[2] == first[2]
        for mine, theirs in zip(first[:2], other[:2], strict=True):
            assert theirs.range_P.tolist() == mine.range_P.tolist()
            assert theirs.rows_P.tolist() == mine.rows_P.tolist()
        for (rows, mine), (same_rows, theirs) in zip(first[3], other[3], strict=True):
            assert torch.equal(rows, same_rows)
            differ = mine != theirs
            assert ((mine == rows) | (theirs == rows))[differ].all()
            assert differ.double().mean() < 0.01


def test_the_scale_of_gradients_depends_on_how_many_ranks_share_a_row():
    """Both halves of a batch look up the same ids with equal gradients.

    One rank sends the sum of both for each row; of two ranks each sends its half of that. So there
    are twice the rows, of half the size. The range of rows does not depend on it.
    """
    ids_TB = ids_once(0)[:, : SAMPLES // 2].repeat(1, 2)
    weight_BTD = torch.randn(SAMPLES // 2, len(TABLES), DIM).repeat(2, 1, 1)
    one, two = made(1, BOUNDED), made(2, BOUNDED)
    for embeddings in (one, two):
        train(embeddings, ids_TB, weight_BTD)
    (alone, *_), (shared, *_) = scales_of(one), scales_of(two)
    assert alone.of("forward").range_P.tolist() == shared.of("forward").range_P.tolist()
    for direction in ("forward", "backward"):
        assert (2 * alone.of(direction).rows_P).tolist() == shared.of(direction).rows_P.tolist()
    assert (alone.of("backward").range_P / 2).tolist() == shared.of("backward").range_P.tolist()
    tolerance = SAMPLES * DIM * np.finfo(np.float64).eps
    np.testing.assert_allclose(
        alone.of("backward").rms_P / 2, shared.of("backward").rms_P, rtol=tolerance, atol=0
    )


@each("by_rows", [(), ("backward",), ("forward", "backward")])
def test_with_a_replicated_table_bounds_of_the_others_do_not_depend_on_the_number_of_ranks(by_rows):
    """Gradients of its rows go to all other ranks, of which there are one, two and three.

    They are given numbers, and every id is looked up once; so all ranks together send the same.
    """
    tables, found = [*TABLES, Table(name="copied", rows=96, sharding="replicated")], []
    codecs = TableCodecs(ROWS, GRADIENTS, by_rows)
    ids_TB = torch.cat([ids_once(0), ids_once(1)[:1]])
    # another number of rows of each table, so that shares are not all 1; sorted, so that no two
    # ranks look up one row
    ids_TB[0], ids_TB[1] = ids_TB[0, :12].repeat(4).sort().values, ids_TB[1, :24].repeat(2).sort().values
    for ranks in (2, 3, 4):
        embeddings = made(ranks, codecs, tables=tables)
        train(embeddings, ids_TB, torch.ones(SAMPLES, len(tables), DIM))
        scales = scales_of(embeddings)[0]
        assert scales.of("forward").rows_P.tolist() == [12, 24, 0]
        assert scales.of("backward").rows_P.tolist() == [12, 24, 48]
        plan = plan_of(codecs, len(tables))
        found.append([scales.codecs(plan, direction) for direction in ("forward", "backward")])
    assert found[1] == found[0]
    assert found[2] == found[0]
    share_P = np.sqrt(np.array([12, 24, 48]) / 28) if by_rows else np.ones(3)
    for codec, share, sent in zip(found[0][1], share_P, (4, 2, 1), strict=True):
        assert codec.bound == 0.1 * sent * share


@each("codec", [None, Lossless(), Cast("fp16")])
@each("ranks", [1, 3])
def test_exact_plans_measure_nothing_and_send_nothing(codec, ranks):
    """Codecs without a bound neither."""
    embeddings = made(ranks, TableCodecs(codec, codec))
    for step in range(2):
        train(embeddings, ids_once(step))
    empty = TableScales(len(TABLES)).state()
    for scales in scales_of(embeddings):
        assert scales.state() == empty
        assert scales.agreements == 0
    accounts = embeddings.engines[0].ledger.accounts
    assert accounts["backward"].sizes == accounts["forward"].sizes


@each("ranks", [1, 2, 3])
def test_the_ledger_counts_what_ranks_tell_each_other(ranks):
    """12 figures of each part, in float64, to every other rank, when they agree."""
    embeddings = made(ranks, BOUNDED)
    for step in range(3):
        train(embeddings, ids_once(step))
    accounts = embeddings.engines[0].ledger.accounts
    told = 2 * 12 * 8 * len(TABLES) * ranks * (ranks - 1)
    heads = 3 * ranks * (ranks - 1)
    more = accounts["backward"].sizes - accounts["forward"].sizes - told
    assert abs(more) <= heads * len(TABLES)  # a size may have two bytes one way, and one the other


def test_an_evaluation_is_not_measured():
    embeddings = made(2, BOUNDED)
    train(embeddings, ids_once(0))
    before = [scales.state() for scales in scales_of(embeddings)]
    embeddings.eval()
    with torch.no_grad():
        embeddings(Lookups.single(ids_once(1)))
    assert [scales.state() for scales in scales_of(embeddings)] == before


@each("codecs", [BOUNDED, TableCodecs(ROWS, None)])
def test_once_there_were_bounds_scales_are_kept_up_in_steps_without_any(codecs):
    """What bounds did is still in the rows, and they may come back."""
    steps = []

    class Changing:
        bounded, exact = plan_of(codecs), plan_of(EXACT)

        def plan_for(self, step):
            return self.bounded if step == 1 else self.exact

    embeddings = made_local(TABLES, DIM, 2, optimizer=SGD(0.5), policy=Changing())
    for step in range(4):
        train(embeddings, ids_once(step))
        steps.append(scales_of(embeddings)[0].agreements)
    assert steps == [0, 1, 1, 2]


# ---- one by one ---------------------------------------------------------------------------------


class Agreeing:
    """Scales of some ranks that send rows which a test makes up."""

    def __init__(self, ranks, parts=2, codecs=BOUNDED):
        world = LocalWorld(ranks, patience_s=0)
        self.plan = plan_of(codecs, parts)
        self.each = [TableScales(parts) for _ in range(ranks)]
        self.transports = [world.of(rank).transport("scales") for rank in range(ranks)]
        self.noise = [NoiseCount(1, np.ones(parts, bool), np.dtype(np.float32)) for _ in range(ranks)]

    def note(self, rank, rows_RD, counts_P, *, direction="forward", step=0):
        rows_RD = np.asarray(rows_RD, np.float32)
        assert len(rows_RD) == sum(counts_P)
        self.each[rank].note(direction, step, self.plan, rows_RD, np.array([counts_P]))

    def agree(self, step=0):
        sent = finish(
            in_step(
                [
                    scales.agree(step, self.plan, noise, transport)
                    for scales, noise, transport in zip(self.each, self.noise, self.transports, strict=True)
                ]
            )
        )
        states = [scales.state() for scales in self.each]
        assert all(state["agreed"] == states[0]["agreed"] for state in states)
        assert all(state["noted"] == TableScales(len(self.plan.tables)).state()["noted"] for state in states)
        return sent


def test_figures_of_ranks_and_steps_are_put_together():
    ranks = Agreeing(2)
    ranks.note(0, [[1, 2], [3, 4], [-5, 6]], [1, 2])
    ranks.note(1, [[-7, 8]], [1, 0])
    ranks.note(1, [[9, 0]], [1, 0])
    ranks.agree()
    scales = ranks.each[0].of("forward")
    assert scales.range_P.tolist() == [16, 11]
    squares = [1 + 4 + 49 + 64 + 81, 9 + 16 + 25 + 36]
    assert scales.rms_P.tolist() == [math.sqrt(squares[0] / 6), math.sqrt(squares[1] / 4)]
    assert scales.rows_P.tolist() == [3, 2]


def test_a_rank_with_several_peers_notes_what_it_sends_to_all():
    ranks = Agreeing(2)
    rows_RD = np.array([[1.0], [2], [4], [8], [16]], np.float32)
    ranks.each[0].note("backward", 0, ranks.plan, rows_RD, np.array([[1, 2], [0, 0], [1, 1]]))
    ranks.agree()
    scales = ranks.each[1].of("backward")
    # the first and fourth row are of part 0, the others of part 1
    assert scales.range_P.tolist() == [7, 14]
    assert scales.rows_P.tolist() == [2, 3]
    assert scales.rms_P.tolist() == [math.sqrt((1 + 64) / 2), math.sqrt((4 + 16 + 256) / 3)]


def test_a_table_that_nobody_looked_up_keeps_what_was_known_of_it():
    ranks = Agreeing(2, parts=3)
    ranks.note(0, [[1, 2], [3, 7]], [1, 1, 0])
    ranks.agree(0)
    before = ranks.each[0].of("forward")
    assert before.range_P.tolist() == [1, 4, 0]
    ranks.note(1, [[5, 5.5]], [1, 0, 0], step=1)
    ranks.agree(1)
    after = ranks.each[1].of("forward")
    assert after.range_P.tolist() == [0.5, 4, 0]
    assert after.rms_P[1] == before.rms_P[1] == math.sqrt((9 + 49) / 2)
    assert after.rows_P.tolist() == [1, 1, 0]
    codecs = ranks.each[0].codecs(ranks.plan, "forward")
    assert codecs == [BoundedRows(0.01 * 0.5), BoundedRows(0.01 * 4), ROWS]


@each("values", [[0.0, 0.0], [3.0, 3.0]])
def test_a_table_without_a_range_leaves_its_bound_to_blocks(values):
    """All zeros, or one value everywhere: there is nothing to take a share of."""
    ranks = Agreeing(1)
    ranks.note(0, [values, [1, 2]], [1, 1])
    ranks.agree()
    assert ranks.each[0].codecs(ranks.plan, "forward") == [ROWS, BoundedRows(0.01)]


def test_a_step_in_which_nobody_sends_anything_leaves_all_bounds_to_blocks():
    ranks = Agreeing(2)
    ranks.note(0, np.empty((0, 4)), [0, 0])
    ranks.agree()
    assert figures(ranks.each[0].of("forward")) == [[0, 0]] * 3
    assert ranks.each[1].codecs(ranks.plan, "forward") == [ROWS] * 2
    assert ranks.each[1].codecs(ranks.plan, "backward") == [GRADIENTS] * 2


@pytest.mark.parametrize("direction", ["forward", "backward"])
@each("odd", [math.nan, math.inf, -math.inf])
def test_values_that_are_no_numbers_do_not_get_into_scales(direction, odd):
    ranks = Agreeing(2)
    ranks.note(0, [[-1, 2], [odd, 1], [3, -4]], [2, 1], direction=direction)
    ranks.note(1, [[odd, odd], [1, odd]], [1, 1], direction=direction)
    ranks.agree()
    scales = ranks.each[0].of(direction)
    assert scales.range_P.tolist() == [3, 7]
    # of three finite values each
    assert scales.rms_P.tolist() == [math.sqrt(6 / 3), math.sqrt(26 / 3)]
    for codec in ranks.each[0].codecs(ranks.plan, direction):
        assert codec.relative_to is None


@pytest.mark.parametrize("direction", ["forward", "backward"])
@each("odd", [math.nan, math.inf, -math.inf])
def test_beside_values_that_are_no_numbers_zero_is_not_taken_for_one(odd, direction):
    """All values are near 5.5: a 0 in place of what is no number would widen their range to 6."""
    ranks = Agreeing(1)
    ranks.note(0, [[5, 6], [5.5, odd], [odd, odd]], [2, 1], direction=direction)
    ranks.agree()
    scales = ranks.each[0].of(direction)
    assert scales.range_P.tolist() == [1, 0]
    assert scales.rms_P.tolist() == [math.sqrt((25 + 36 + 5.5**2) / 3), 0]
    assert scales.rows_P.tolist() == [2, 1]
    (first, second), written = ranks.each[0].codecs(ranks.plan, direction), getattr(BOUNDED, direction)
    assert first.bound == written.bound * (1 if direction == "forward" else scales.rms_P[0])
    assert second == written


def test_the_largest_numbers_have_scales_and_bounds_too():
    ranks = Agreeing(1)
    most = np.finfo(np.float32).max
    for direction in ("forward", "backward"):
        ranks.note(0, [[-most, most], [most, most]], [1, 1], direction=direction)
    ranks.agree()
    rows, gradients = (ranks.each[0].of(direction) for direction in ("forward", "backward"))
    assert rows.range_P.tolist() == [2 * float(most), 0]
    assert gradients.rms_P == pytest.approx([float(most)] * 2, rel=1e-15)
    for direction in ("forward", "backward"):
        assert all(codec.bound > 0 for codec in ranks.each[0].codecs(ranks.plan, direction))


def test_gradients_that_are_no_numbers_stay_in_their_rows_and_training_goes_on():
    embeddings = made(2, BOUNDED)
    weight_BTD = torch.ones(SAMPLES, len(TABLES), DIM)
    weight_BTD[0, 0] = math.nan
    weight_BTD[1, 0] = math.inf
    for step in range(3):
        train(embeddings, ids_once(0), weight_BTD if step == 0 else None)
    for direction in ("forward", "backward"):
        scales = scales_of(embeddings)[0].of(direction)
        assert all(math.isfinite(x) for figure in figures(scales) for x in figure)
        for codec in scales_of(embeddings)[0].codecs(plan_of(BOUNDED), direction):
            assert codec.relative_to is None
    split, whole = (embeddings.engines[0].table_shard(table.name)[1] for table in TABLES)
    odd = set(torch.nonzero(~split.isfinite().all(dim=1)).flatten().tolist())
    assert odd == set(ids_once(0)[0, :2].tolist())
    assert whole.isfinite().all()


# ---- the square root of rows --------------------------------------------------------------------


def bounds_of(scales, by_rows_P, codec=ROWS):
    """Bounds that a codec gets where these parts go by rows."""
    share_P = scales.shares(np.array(by_rows_P))
    return [scales.codec(codec, part, float(share)).bound for part, share in enumerate(share_P)]


def test_bounds_by_rows_grow_with_the_square_root_and_the_mean_table_keeps_what_was_written():
    scales = Scales(np.array([2.0, 2, 2]), np.array([4.0, 4, 4]), np.array([10.0, 40, 70]))
    bounds = bounds_of(scales, [True] * 3)
    assert bounds[1] == 0.01 * 2
    assert bounds == [0.01 * 2 * math.sqrt(rows / 40) for rows in (10, 40, 70)]
    # so the sum of their squares, harm, is that of equal bounds
    assert sum(bound**2 for bound in bounds) == pytest.approx(3 * 0.02**2, rel=1e-15)
    assert bounds_of(scales, [False] * 3, GRADIENTS) == [0.1 * 4] * 3


def test_a_table_that_sent_nothing_is_not_among_those_of_the_mean():
    scales = Scales(np.array([2.0, 0, 2]), np.array([4.0, 0, 4]), np.array([10.0, 0, 30]))
    bounds = bounds_of(scales, [True] * 3)
    assert bounds[0::2] == [0.01 * 2 * math.sqrt(rows / 20) for rows in (10, 30)]
    assert scales.codec(ROWS, 1, float(scales.shares(np.ones(3, bool))[1])) == ROWS
    alone = Scales(np.array([0.0, 3]), np.array([0.0, 3]), np.array([0.0, 7]))
    assert bounds_of(alone, [True, True])[1] == 0.01 * 3


@each("by_rows_P", [[True, False, True, False], [True, False, True, True]])
def test_the_mean_is_of_the_tables_that_go_by_rows_and_of_no_others(by_rows_P):
    """What the second table sends changes no other bound, nor the fourth where it is not by rows."""
    for second, fourth in ((1.0, 5.0), (1e6, 5.0), (0.0, 5.0), (1e6, 45.0)):
        rows_P = np.array([10.0, second, 30, fourth])
        scales = Scales(np.full(4, 2.0), np.full(4, 4.0), rows_P)
        asked_P = rows_P[by_rows_P]
        expected = [
            0.01 * 2 * (math.sqrt(rows / asked_P.mean()) if by_rows else 1.0)
            for rows, by_rows in zip(rows_P, by_rows_P, strict=True)
        ]
        assert bounds_of(scales, by_rows_P) == expected


def test_where_no_table_goes_by_rows_every_share_is_1():
    scales = Scales(np.ones(3), np.ones(3), np.array([10.0, 0, 30]))
    assert scales.shares(np.zeros(3, bool)).tolist() == [1, 1, 1]
    assert Scales(np.ones(2), np.ones(2), np.zeros(2)).shares(np.ones(2, bool)).tolist() == [1, 1]


@each("codec", [None, Lossless(), Cast("fp16"), BoundedRows(0.5), BoundedRows(0.5, rounding="unbiased")])
@each("share", [1.0, 0.5])
def test_what_is_not_a_share_of_anything_stays_as_it_is(codec, share):
    scales = Scales(np.array([2.0, 2]), np.array([4.0, 4]), np.array([10.0, 30]))
    assert scales.codec(codec, 0, share) is codec


def test_directions_by_rows_are_those_that_the_plan_names():
    """The first table sends a quarter of the rows of the second: 12 and 48, their mean is 30."""
    codecs = TableCodecs(ROWS, GRADIENTS, ("backward",))
    embeddings, ids_TB = made(2, codecs), ids_once(0)
    ids_TB[0] = ids_TB[0, :12].repeat(4)
    # sorted, so that no two ranks look up one row
    ids_TB[0] = ids_TB[0].sort().values
    train(embeddings, ids_TB)
    scales = scales_of(embeddings)[0]
    rows, gradients = scales.of("forward"), scales.of("backward")
    assert rows.rows_P.tolist() == gradients.rows_P.tolist() == [12, 48]
    plan = plan_of(codecs)
    assert [codec.bound for codec in scales.codecs(plan, "forward")] == (0.01 * rows.range_P).tolist()
    assert [codec.bound for codec in scales.codecs(plan, "backward")] == [
        0.1 * rms * math.sqrt(sent / 30) for rms, sent in zip(gradients.rms_P, (12, 48), strict=True)
    ]


# ---- when ---------------------------------------------------------------------------------------


def test_ranks_agree_after_doubling_numbers_of_steps_and_then_after_every_256th():
    agreed = [steps for steps in range(1, 1300) if agrees_after(steps)]
    assert agreed == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1280]


def test_ranks_measure_in_the_eight_steps_before_they_agree():
    ranks = Agreeing(1)
    measured = []
    for step in range(300):
        before = ranks.each[0].state()["noted"]
        ranks.note(0, [[1, 2]], [1, 0], step=step)
        if ranks.each[0].state()["noted"] != before:
            measured.append(step)
        finish(ranks.each[0].agree(step, ranks.plan, ranks.noise[0], ranks.transports[0]))
    before_sums = [range(max(end - 8, 0), end) for end in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    assert measured == sorted({step for steps in before_sums for step in steps})


def test_whoever_has_not_agreed_yet_does_so_in_any_step():
    """As after a warm-up: the first step with bounds may be any."""
    ranks = Agreeing(2)
    ranks.note(0, [[1, 2]], [1, 0], step=1000)
    assert all(ranks.agree(1000))
    assert ranks.each[1].of("forward").range_P.tolist() == [1, 0]
    assert ranks.agree(1001) == [0, 0]


def test_without_parts_nothing_is_needed():
    """As for the copies of hot rows that differ between steps, which are summed up exactly."""
    assert not TableScales(0).needed(plan_of(BOUNDED))
    assert TableScales(2).needed(plan_of(BOUNDED))
    assert not TableScales(2).needed(plan_of(EXACT))


# ---- states -------------------------------------------------------------------------------------


def agreed_and_noted():
    """Scales that have agreed after step 0, and have noted more since."""
    ranks = Agreeing(1)
    ranks.note(0, [[1, 2], [3, -4]], [1, 1])
    ranks.note(0, [[0.5, 0.25]], [0, 1], direction="backward")
    ranks.agree()
    ranks.note(0, [[7, 8]], [1, 0], step=1)
    return ranks


@each("noted", [True, False])
def test_a_state_brings_back_what_was_agreed_and_what_was_noted_if_it_is_asked_for(noted):
    ranks = agreed_and_noted()
    (scales,) = ranks.each
    scales.noise_2P[:] = [[1, 2], [3, 4]]
    other = TableScales(2)
    other.restore(scales.state(), noted=noted)
    state, empty = scales.state(), TableScales(2).state()
    assert state["noted"] != empty["noted"]
    assert other.state() == {**state, "noted": state["noted"] if noted else empty["noted"]}
    for direction in ("forward", "backward"):
        assert other.codecs(ranks.plan, direction) == scales.codecs(ranks.plan, direction)
    assert other.agreements > 0  # so that codecs are made anew


def test_a_state_is_a_copy():
    ranks = agreed_and_noted()
    state = ranks.each[0].state()
    text = repr(state)
    ranks.note(0, [[70, 80]], [1, 0], step=1)
    ranks.each[0].restore(state)
    ranks.note(0, [[70, 80]], [1, 0], step=1)
    ranks.agree(1)
    assert repr(state) == text


def test_after_a_state_of_before_there_were_scales_everything_is_measured_anew():
    ranks = agreed_and_noted()
    (scales,) = ranks.each
    before = scales.agreements
    scales.restore(None)
    assert scales.state() == TableScales(2).state()
    assert scales.codecs(ranks.plan, "forward") == [ROWS] * 2
    assert scales.agreements > before
