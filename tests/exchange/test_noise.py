"""What rounding puts into rows, and what it costs: as the formulas say, and as it comes true.

Shapes: ``P`` parts (tables), ``T`` tables, ``R`` rows, ``D`` dimensions, ``B`` samples, ``C``
contributions.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows, Cast, Lossless
from laconic.exchange import SGD, RowwiseAdagrad, Table
from laconic.exchange.contributions import Contributions, HeldGradients
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.exchange.noise import NoiseCount, RoundedContributions
from laconic.kernels import Optimizer, RowTable, RowUpdate, active
from laconic.lookups import Lookups
from tests.cases import each
from tests.distributed.made import made_local

DIM = 8
RATE = 0.5
TABLES = [
    Table(name="split", rows=96, sharding="row"),
    Table(name="whole", rows=96),
    Table(name="copied", rows=96, sharding="replicated"),
]
STEP = 2.0**-6
ROUNDED = BoundedRows(STEP, rounding="unbiased")
"""Unbiased rounding errs by up to a whole step, so its bound is the step of its grid."""
EXACT = TableCodecs()
EPS = float(np.finfo(np.float32).eps)


def made(ranks, codecs_T, *, tables=TABLES, all_remote=True, **options):
    policy = FixedPolicy(ExchangePlan(tuple(codecs_T)))
    options = {"optimizer": SGD(RATE), "all_remote": all_remote} | options
    return made_local(tables, DIM, ranks, policy=policy, **options)


def gradients(samples, tables, seed=0):
    """Gradients far above the step of the grid, so that a value is anywhere between two codes."""
    generator = torch.Generator().manual_seed(seed)
    size_BTD = 1 + torch.rand(samples, tables, DIM, generator=generator)
    return size_BTD * (1 - 2 * torch.randint(0, 2, size_BTD.shape, generator=generator))


def train(embeddings, ids_TB, gradient_BTD):
    """Take a step in which pooled rows have these gradients."""
    (embeddings(Lookups.single(ids_TB)) * gradient_BTD).sum().backward()
    embeddings.optimizer.step()


def all_once(tables, rows=96, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(rows, generator=generator) for _ in range(tables)])


def tables_of(embeddings):
    engine = embeddings.engines[0]
    return [engine.table_shard(table.name)[1].clone() for table in engine.layout.tables]


def noise_of(embeddings):
    """Counted variance of all rows of every table."""
    engine, found = embeddings.engines[0], []
    for table in engine.layout.tables:
        engine.table_shard(table.name)
        found.append(engine.table_noise(table.name).clone())
    return found


def trained(ranks, codecs_T, steps=4, **options):
    embeddings = made(ranks, codecs_T, **options)
    tables = len(embeddings.tables)
    for step in range(steps):
        train(embeddings, all_once(tables, seed=step), gradients(96, tables, step))
    return embeddings


# ---- what is counted in rows --------------------------------------------------------------------


@each("ranks", [1, 2, 3])
@each("codec", [None, Lossless(), Cast("fp16")])
def test_exact_training_costs_nothing(ranks, codec):
    embeddings = trained(ranks, [TableCodecs(codec, codec)] * 3)
    cost = embeddings.engines[0].rounding_cost()
    assert cost.rows_T.tolist() == cost.gradients_T.tolist() == cost.sent_T.tolist() == [0, 0, 0]
    assert cost.rows_error_T.tolist() == cost.gradients_error_T.tolist() == [0, 0, 0]
    assert all(not noise_R.any() for noise_R in noise_of(embeddings))


@each("ranks", [1, 2, 3])
@each("rounded", [0, 1, 2])
def test_only_a_table_whose_gradients_are_rounded_has_noise_and_costs(ranks, rounded):
    codecs_T = [TableCodecs(None, ROUNDED) if t == rounded else EXACT for t in range(3)]
    embeddings = trained(ranks, codecs_T)
    cost = embeddings.engines[0].rounding_cost()
    assert (cost.gradients_T > 0).tolist() == [t == rounded for t in range(3)]
    assert not cost.rows_T.any()
    for t, noise_R in enumerate(noise_of(embeddings)):
        assert bool((noise_R > 0).all()) is (t == rounded)
        assert bool((noise_R > 0).any()) is (t == rounded)


@each("ranks", [1, 2, 3])
def test_every_update_adds_the_squared_rate_times_a_sixth_of_the_squared_step(ranks):
    """Rows are looked up once in every step, so by one rank.

    Gradients of replicated rows are rounded on every rank alike, also where one rank is alone.
    """
    embeddings = trained(ranks, [TableCodecs(None, ROUNDED)] * 3, steps=3)
    added = np.float32(RATE) ** 2 * (np.float32(STEP) ** 2 / np.float32(6))
    for noise_R in noise_of(embeddings):
        assert set(noise_R.tolist()) == {float(added + added + added)}
    exact = trained(ranks, [EXACT] * 3, steps=3)
    for mine, theirs in zip(tables_of(embeddings), tables_of(exact), strict=True):
        assert (mine != theirs).any(dim=1).all()


def test_rounding_to_the_nearest_counts_a_third_of_its_squared_bound():
    codec = TableCodecs(None, BoundedRows(STEP))
    embeddings = trained(2, [codec] * 3, steps=1)
    for noise_R in noise_of(embeddings):
        # the grid step of which a sixth of the square is that is a root, rounded
        assert noise_R.numpy() == pytest.approx(np.full(96, RATE**2 * STEP**2 / 3), rel=4 * EPS)


def test_what_a_rank_asks_of_itself_is_exact_and_counts_as_that():
    """Both ranks look up all rows: each row has a gradient that travels and one that does not."""
    tables = TABLES[:2]
    embeddings = made(2, [TableCodecs(None, ROUNDED)] * 2, tables=tables, all_remote=False)
    ids_TB = torch.stack([torch.arange(96).repeat(2)] * 2)
    train(embeddings, ids_TB, gradients(192, 2))
    remote = made(2, [TableCodecs(None, ROUNDED)] * 2, tables=tables)
    train(remote, ids_TB, gradients(192, 2))
    for some_R, all_R in zip(noise_of(embeddings), noise_of(remote), strict=True):
        assert torch.equal(2 * some_R, all_R)
        assert (some_R > 0).all()


def test_a_row_whose_gradients_do_not_travel_has_no_noise_and_no_error():
    """Even rows are of the first rank and looked up by it, odd ones of the second by the first."""
    table = [Table(name="split", rows=96, sharding="row")]
    ids_TB, gradient_BTD = torch.arange(96)[None], gradients(96, 1)
    ids_TB = torch.cat([ids_TB[:, 0::2], ids_TB[:, 1::2]], dim=1)
    ids_TB[:, :24], ids_TB[:, 48:72] = ids_TB[:, 48:72].clone(), ids_TB[:, :24].clone()
    rounded, exact = (
        made(2, [TableCodecs(None, codec)], tables=table, all_remote=False) for codec in (ROUNDED, None)
    )
    for embeddings in (rounded, exact):
        train(embeddings, ids_TB, gradient_BTD)
    (noise_R,) = noise_of(rounded)
    differs_R = (tables_of(rounded)[0] != tables_of(exact)[0]).any(dim=1)
    assert (noise_R > 0).sum() == 48
    assert torch.equal(differs_R, noise_R > 0)


@each("optimizer", [SGD(RATE), RowwiseAdagrad(RATE, eps=1e-6)])
def test_counting_changes_no_row(optimizer):
    """Bounds so small that codecs keep all values: the same rows as of an exact run."""
    tiny = BoundedRows(1e-37)
    counted, exact = (
        trained(2, [TableCodecs(None, codec)] * 3, optimizer=optimizer) for codec in (tiny, None)
    )
    for mine, theirs in zip(tables_of(counted), tables_of(exact), strict=True):
        assert torch.equal(mine, theirs)


def test_hot_rows_have_their_noise_where_their_table_is_read():
    """Copies are sums of rounded gradients of all ranks; their places are brought up to date."""
    codecs = TableCodecs(None, ROUNDED)
    embeddings = made(2, [codecs] * 3, hot={"split": [0, 5, 90]})
    for step in range(2):
        train(embeddings, all_once(3, seed=step), gradients(96, 3, step))
    cold = trained(2, [codecs] * 3, steps=2)
    for hot_R, cold_R in zip(noise_of(embeddings), noise_of(cold), strict=True):
        assert torch.equal(hot_R, cold_R)
    ids_H, _, _ = embeddings.engines[0].hot_rows("split")
    for rank in embeddings.engines[0].ranks:
        assert torch.equal(rank.shards.hot_noise("split"), noise_of(cold)[0][torch.from_numpy(ids_H)])


# ---- whether it comes true ----------------------------------------------------------------------


def test_counted_variance_is_that_of_the_difference_to_an_exact_run():
    """Gradients are given numbers, so rows differ by the rounding of gradients, and nothing else.

    An entry that lies at a share ``f`` of a step is off by ``f`` or ``1 - f`` of it. With ``f``
    even, its square has mean 1/6 and fourth power mean 1/15, in steps. Sums of three such errors
    ``e`` have squares of mean ``3 / 6`` and variance ``3 / 15 + 3 * 2 * 3 / 36 - (3 / 6) ** 2``.
    Means over 12,000 entries are within five standard errors of that but for one time in a million;
    the step is smaller than its bound by one part in 2,048 at most (docs/formats/bounded_rows.md).
    """
    rows, steps, table = 1500, 3, [Table(name="split", rows=1500, sharding="row")]
    rounded, exact = (made(2, [TableCodecs(None, codec)], tables=table) for codec in (ROUNDED, None))
    for embeddings in (rounded, exact):
        for step in range(steps):
            train(embeddings, all_once(1, rows, seed=step), gradients(rows, 1, step))
    (noise_R,) = noise_of(rounded)
    error_RD = tables_of(rounded)[0].double() - tables_of(exact)[0].double()
    counted = float(noise_R[0])
    assert (noise_R == counted).all()
    one_step = (RATE * STEP) ** 2
    assert counted == pytest.approx(steps * one_step / 6, rel=steps * EPS)
    variance = steps / 15 + steps * (steps - 1) * 3 / 36 - (steps / 6) ** 2
    standard_error = one_step * np.sqrt(variance / error_RD.numel())
    real = float(error_RD.square().mean())
    assert abs(real - counted) <= 5 * standard_error + counted / 1024
    # it is right on average
    assert abs(float(error_RD.mean())) <= 5 * np.sqrt(counted / error_RD.numel())


def test_rows_with_more_rounded_gradients_differ_as_much_more():
    """Rows of the second half are looked up by both ranks, those of the first by one of them."""
    rows, table = 4000, [Table(name="split", rows=4000, sharding="row")]
    ids_B = torch.cat([torch.arange(2000), torch.arange(2000, 4000), torch.arange(2000, 4000)])
    ids_B = torch.cat([ids_B[:1000], ids_B[2000:4000], ids_B[1000:2000], ids_B[4000:]])
    rounded, exact = (made(2, [TableCodecs(None, codec)], tables=table) for codec in (ROUNDED, None))
    for embeddings in (rounded, exact):
        train(embeddings, ids_B[None], gradients(len(ids_B), 1))
    noise_R = noise_of(rounded)[0].double()
    assert noise_R[rows // 2 :].tolist() == (2 * noise_R[: rows // 2]).tolist()
    error_RD = tables_of(rounded)[0].double() - tables_of(exact)[0].double()
    for count, half in ((1, slice(0, rows // 2)), (2, slice(rows // 2, rows))):
        counted, real_RD = float(noise_R[half][0]), error_RD[half]
        variance = count / 15 + count * (count - 1) * 3 / 36 - (count / 6) ** 2
        standard_error = (RATE * STEP) ** 2 * np.sqrt(variance / real_RD.numel())
        assert abs(float(real_RD.square().mean()) - counted) <= 5 * standard_error + counted / 1024


# ---- what it costs ------------------------------------------------------------------------------


@each("optimizer", [SGD(RATE), RowwiseAdagrad(RATE, eps=1e-6)])
def test_variance_and_cost_grow_with_the_square_of_the_gradient_bound(optimizer):
    """Of SGD the variance is four times as large, to the bit, where the step is twice as large.

    The cost is that times half of samples, columns and the mean square of gradients. Rounding moves
    an entry of size 1 at least by a step at most, so a square by ``(1 + step) ** 2``, and what is
    taken off for noise is ``step ** 2 / 6``. Adagrad's factors have roots of sums of such squares.
    """
    steps = (2.0**-10, 2.0**-9)
    found = [
        trained(
            2, [TableCodecs(None, BoundedRows(step, rounding="unbiased"))] * 3, optimizer=optimizer, steps=4
        )
        for step in steps
    ]
    for small_R, large_R in zip(*map(noise_of, found), strict=True):
        if isinstance(optimizer, SGD):
            assert torch.equal(large_R, 4 * small_R)
        else:
            assert large_R.numpy() == pytest.approx(4 * small_R.numpy(), rel=(1 + steps[1]) ** 4 - 1)
    small, large = (embeddings.engines[0].rounding_cost().gradients_T for embeddings in found)
    assert (small > 0).all()
    moved = (1 + steps[1]) ** 2 * (1 + steps[1] ** 2) - 1
    assert large == pytest.approx(4 * small, rel=4 * moved)


def test_the_cost_is_half_of_samples_and_squares_times_the_noise_of_the_rows():
    """After four steps ranks have told what the updates of the second and third cost.

    Those of rows that are looked up once by one rank: sums over rows of half of samples, columns
    and mean square, times the noise that they had when they were looked up, and the mean of steps.
    """
    embeddings = trained(2, [TableCodecs(None, ROUNDED), EXACT, EXACT], steps=4)
    once = RATE**2 * STEP**2 / 6
    half = [96 / 2 * float(gradients(96, 3, step)[:, 0].double().square().sum()) for step in (1, 2)]
    expected = (half[0] * once + half[1] * 2 * once) / 2
    # what rounding does to squares, as above
    moved = (1 + STEP) ** 2 * (1 + STEP**2) - 1
    assert embeddings.engines[0].rounding_cost().gradients_T == pytest.approx([expected, 0, 0], rel=moved)


@each("ranks", [1, 2, 3])
def test_rounded_rows_cost_a_sixth_of_the_squared_step_times_the_same_curvature(ranks):
    """Of bounds that are absolute, after two steps: those of the update of the first.

    Replicated tables are read where they are. To the nearest, a third of the squared bound.
    """
    rows = BoundedRows(2.0**-8, rounding="unbiased")
    codecs_T = [TableCodecs(rows, None), TableCodecs(BoundedRows(2.0**-8)), TableCodecs(rows)]
    embeddings = trained(ranks, codecs_T, steps=2)
    half_T = 96 / 2 * gradients(96, 3).double().square().sum(dim=(0, 2))
    expected_T = half_T.numpy() * 2.0**-16 * np.array([1 / 6, 1 / 3, 0])
    cost = embeddings.engines[0].rounding_cost()
    # squares of rows are summed in float32
    assert cost.rows_T == pytest.approx(expected_T, rel=96 * DIM * EPS)
    assert not cost.gradients_T.any()


@each("ranks", [1, 2, 3])
def test_costs_follow_the_bounds_of_now(ranks):
    """What is relative has a known step from the first agreement on; it is that of the scales."""
    codecs = TableCodecs(BoundedRows(0.01, relative_to="range", rounding="unbiased"), None)
    embeddings = trained(ranks, [codecs, codecs, EXACT], steps=2)
    scales = embeddings.engines[0].ranks[0].rows.scales
    bound_T = np.append(0.01 * scales.of("forward").range_P[:2], 0)
    expected_T = scales.noise_2P[1] * bound_T**2 / 6
    cost = embeddings.engines[0].rounding_cost()
    # three products, which may be made in any order
    assert cost.rows_T == pytest.approx(expected_T, rel=4 * np.finfo(np.float64).eps)
    assert (cost.rows_T[:2] > 0).all()
    assert cost.sent_T.tolist() == scales.of("backward").rows_P.tolist()


@each(
    ("ranks", "hot"),
    [(1, None), *((ranks, hot) for ranks in (2, 3) for hot in (None, {"split": [0, 5, 90]}))],
)
def test_errors_are_shares_of_the_mean_square_of_what_was_sent(ranks, hot):
    """A sixth of the squared step, of a bound that is absolute, beside the mean square of a table.

    Rows that are hot or replicated are read where they are; their gradients travel, unless a rank
    is alone. Sums are of the third and fourth steps, because ranks agreed after two.
    """
    rows = BoundedRows(2.0**-8, rounding="unbiased")
    codecs_T = [TableCodecs(rows, ROUNDED), TableCodecs(None, ROUNDED), TableCodecs(rows, ROUNDED)]
    embeddings, read = made(ranks, codecs_T, hot=hot), []
    for step in range(4):
        read.append(tables_of(embeddings))
        train(embeddings, all_once(3, seed=step), gradients(96, 3, step))
    cost = embeddings.engines[0].rounding_cost()
    cold_R = torch.ones(96, dtype=torch.bool)
    cold_R[[] if hot is None else hot["split"]] = False
    square = np.mean([float(read[step][0][cold_R].double().square().mean()) for step in (2, 3)])
    expected_T = np.array([2.0**-16 / 6 / square, 0, 0])
    assert cost.rows_error_T == pytest.approx(expected_T, rel=96 * DIM * EPS)
    both = torch.stack([gradients(96, 3, step) for step in (2, 3)])
    expected_T = STEP**2 / 6 / both.double().square().mean(dim=(0, 1, 3)).numpy()
    expected_T[2] *= ranks > 1
    assert cost.gradients_error_T == pytest.approx(expected_T, rel=96 * DIM * EPS)


def test_an_error_to_the_nearest_is_a_third_of_its_squared_bound():
    found = [
        trained(2, [TableCodecs(codec, codec)] * 3).engines[0].rounding_cost()
        for codec in (BoundedRows(STEP), ROUNDED)
    ]
    assert found[0].gradients_error_T == pytest.approx(2 * found[1].gradients_error_T, rel=1e-6)
    assert (found[0].gradients_error_T > 0).all()


@each("bound", [0.1, 0.2])
def test_the_error_of_a_bound_that_is_a_share_of_the_root_mean_square_is_known(bound):
    """A sixth of the square of the share, whatever the table."""
    codec = BoundedRows(bound, relative_to="rms", rounding="unbiased")
    cost = trained(2, [TableCodecs(codec, codec)] * 3).engines[0].rounding_cost()
    # bounds are rounded to float32 once, and squared
    assert cost.gradients_error_T == pytest.approx([bound**2 / 6] * 3, rel=4 * EPS)
    assert cost.rows_error_T == pytest.approx([bound**2 / 6] * 2 + [0], rel=4 * EPS)


def test_the_error_of_a_table_whose_parts_differ_is_that_of_all_its_rows():
    """Hot rows have far larger gradients than the others; the table has one error."""
    codecs_T = [TableCodecs(None, ROUNDED), EXACT, EXACT]
    costs = []
    for hot in (None, {"split": [0, 5, 90]}):
        embeddings = made(2, codecs_T, hot=hot)
        for step in range(2):
            ids_TB, gradient_BTD = all_once(3, seed=step), gradients(96, 3, step)
            gradient_BTD[torch.isin(ids_TB[0], torch.tensor([0, 5, 90])), 0] *= 64
            train(embeddings, ids_TB, gradient_BTD)
        costs.append(embeddings.engines[0].rounding_cost().gradients_error_T)
    assert costs[0] == pytest.approx(costs[1], rel=96 * DIM * EPS)
    assert (costs[0] > 0).tolist() == [True, False, False]


def test_replicated_tables_are_counted_by_one_rank_and_others_by_all():
    """Of three ranks as of two, then; each row is looked up once."""
    codecs = TableCodecs(None, ROUNDED)
    costs = [
        trained(ranks, [EXACT, EXACT, codecs], steps=4).engines[0].rounding_cost().gradients_T
        for ranks in (2, 3)
    ]
    moved = (1 + STEP) ** 2 * (1 + STEP**2) - 1
    assert costs[0] == pytest.approx(costs[1], rel=2 * moved)


def test_parts_of_a_table_are_put_together():
    """Hot rows are a part of their own; noise and cost of the table are those without any."""
    codecs_T = [TableCodecs(None, ROUNDED), EXACT, EXACT]
    cold = trained(2, codecs_T).engines[0].rounding_cost()
    hot = trained(2, codecs_T, hot={"split": [0, 5, 90]}).engines[0].rounding_cost()
    moved = (1 + STEP) ** 2 * (1 + STEP**2) - 1
    assert hot.gradients_T == pytest.approx(cold.gradients_T, rel=2 * moved)
    # two ranks: what is hot goes to one other rank, as what is cold goes to its owner
    assert hot.sent_T.tolist() == cold.sent_T.tolist()


def test_an_undone_step_leaves_no_noise_and_no_scale():
    embeddings = trained(2, [TableCodecs(None, ROUNDED)] * 3, steps=3)
    engine = embeddings.engines[0]
    before = [copy.deepcopy(engine.bounds_state()), noise_of(embeddings), tables_of(embeddings)]
    engine.begin_journal()
    for step in range(3):
        train(embeddings, all_once(3, seed=step), gradients(96, 3, step))
    assert engine.bounds_state() != before[0]
    engine.undo()
    engine.end_journal()
    assert engine.bounds_state() == before[0]
    for now, then in zip([*noise_of(embeddings), *tables_of(embeddings)], before[1] + before[2], strict=True):
        assert torch.equal(now, then)


# ---- held gradients, states ---------------------------------------------------------------------


def test_gradients_that_wait_for_a_step_are_counted_when_they_are_applied():
    at_once, later = (made(2, [TableCodecs(None, ROUNDED)] * 3, fused=fused) for fused in (True, False))
    for embeddings in (at_once, later):
        for step in range(3):
            train(embeddings, all_once(3, seed=step), gradients(96, 3, step))
    for now, then in zip(noise_of(at_once), noise_of(later), strict=True):
        assert torch.equal(now, then)


def test_several_batches_of_one_step_add_up():
    embeddings = made(2, [TableCodecs(None, ROUNDED)] * 3, fused=False)
    for seed in range(2):
        (embeddings(Lookups.single(all_once(3, seed=seed))) * gradients(96, 3, seed)).sum().backward()
    assert not any(noise_R.any() for noise_R in noise_of(embeddings))
    embeddings.optimizer.step()
    once = trained(2, [TableCodecs(None, ROUNDED)] * 3, steps=1)
    for two_R, one_R in zip(noise_of(embeddings), noise_of(once), strict=True):
        assert torch.equal(two_R, 2 * one_R)


def backward(embeddings, seed):
    (embeddings(Lookups.single(all_once(3, seed=seed))) * gradients(96, 3, seed)).sum().backward()


@each("ranks", [1, 2, 3])
def test_clipped_gradients_leave_the_noise_of_the_smaller_step_that_they_were_scaled_to(ranks):
    """The variance is off by at most eight roundings of float32, of half of EPS each.

    Those of norm, factor and scaled step count twice, because they are squared; then there are
    those of the step's square, and of a sixth of that.
    """
    embeddings = made(ranks, [TableCodecs(None, ROUNDED)] * 3, fused=False)
    backward(embeddings, 0)
    norm = float(embeddings.optimizer.clip_grad_norm_(0.25))
    embeddings.optimizer.step()
    factor = 0.25 / (norm + 1e-6)
    assert factor < 0.25
    for noise_R in noise_of(embeddings):
        expected_R = np.full(96, (factor * RATE * STEP) ** 2 / 6)
        assert noise_R.numpy() == pytest.approx(expected_R, rel=8 * EPS / 2)


def test_only_what_is_held_when_gradients_are_clipped_has_less_noise():
    """The first of two batches is clipped, the second comes after that.

    Beside the eight roundings above, one of a sixth of a square, and one of the sum.
    """
    codecs_T = [TableCodecs(None, ROUNDED)] * 3
    embeddings, once = made(2, codecs_T, fused=False), trained(2, codecs_T, steps=1)
    backward(embeddings, 0)
    factor = 0.25 / (float(embeddings.optimizer.clip_grad_norm_(0.25)) + 1e-6)
    backward(embeddings, 1)
    embeddings.optimizer.step()
    for both_R, one_R in zip(noise_of(embeddings), noise_of(once), strict=True):
        expected_R = one_R.double().numpy() * (1 + factor**2)
        assert both_R.numpy() == pytest.approx(expected_R, rel=10 * EPS / 2)


def test_gradients_within_the_norm_keep_their_noise_to_the_bit():
    embeddings, plain = (made(2, [TableCodecs(None, ROUNDED)] * 3, fused=False) for _ in range(2))
    for each_one in (embeddings, plain):
        backward(each_one, 0)
    embeddings.optimizer.clip_grad_norm_(1e9)
    for each_one in (embeddings, plain):
        each_one.optimizer.step()
    for mine, theirs in zip(noise_of(embeddings), noise_of(plain), strict=True):
        assert torch.equal(mine, theirs)
        assert mine.all()


@each("factor", [0.5, -0.5, 4.0, 0.0])
def test_held_gradients_are_scaled_with_the_steps_that_they_were_rounded_to(factor):
    """A step has no sign. What nobody counts has none, and what comes later is not scaled."""

    def came(steps):
        index = np.arange(2)
        rounded = None if steps is None else RoundedContributions(index, np.array(steps, np.float32), 5)
        return Contributions(index, index, np.array([[2, 4], [6, 8]], np.float32), index, rounded)

    held = HeldGradients()
    held.add(came([0, 0.25]))
    held.scale(factor)
    held.add(came([1, 2]))
    found = held.take()
    assert found.gradients.tolist() == [[2 * factor, 4 * factor], [6 * factor, 8 * factor], [2, 4], [6, 8]]
    assert found.rounded.grid_step_C.tolist() == [0, 0.25 * abs(factor), 1, 2]
    assert found.rounded.grid_step_C.dtype == np.float32
    held.add(came(None))
    held.scale(factor)
    assert held.take().rounded is None


@each("ranks", [1, 2])
def test_a_state_has_noise_and_bounds_and_training_goes_on_alike(ranks):
    codecs = TableCodecs(
        BoundedRows(0.01, relative_to="range"), BoundedRows(0.1, relative_to="rms", rounding="unbiased")
    )
    embeddings = trained(ranks, [codecs] * 3, steps=5)
    saved = copy.deepcopy(embeddings.state_dict())
    other = made(ranks, [codecs] * 3)
    other.load_state_dict(saved)
    for step in range(5, 9):
        for each_one in (embeddings, other):
            train(each_one, all_once(3, seed=step), gradients(96, 3, step))
    assert other.engines[0].bounds_state() == embeddings.engines[0].bounds_state()
    for mine, theirs in zip(noise_of(other), noise_of(embeddings), strict=True):
        assert torch.equal(mine, theirs)
        assert ranks == 1 or mine.any()
    for mine, theirs in zip(tables_of(other), tables_of(embeddings), strict=True):
        assert torch.equal(mine, theirs)


def without_noise(embeddings):
    """A state as it was before noise was counted."""
    saved = copy.deepcopy(embeddings.state_dict())
    for state in saved["_extra_state"].get("ranks_here", [saved["_extra_state"]]):
        del state["noise"], state["bounds"]
    return saved


@each("ranks", [1, 2])
def test_a_state_of_before_noise_was_counted_is_taken(ranks):
    codecs = TableCodecs(BoundedRows(0.01, relative_to="range"), ROUNDED)
    embeddings = trained(ranks, [codecs] * 3, steps=2)
    other = made(ranks, [codecs] * 3)
    other.load_state_dict(without_noise(embeddings))
    assert all(rank.rows.scales.of("forward") is None for rank in other.engines[0].ranks)
    assert not any(noise_R.any() for noise_R in noise_of(other))
    for mine, theirs in zip(tables_of(other), tables_of(embeddings), strict=True):
        assert torch.equal(mine, theirs)
    train(other, all_once(3, seed=2), gradients(96, 3, 2))


@each("ranks", [1, 2, 3])
@each("hot", [None, {"split": [0, 5, 90]}])
def test_a_state_of_before_noise_was_counted_clears_that_of_rows_which_it_replaces(ranks, hot):
    """Variances, figures and updates; from then on it counts as one that never had any."""
    codecs_T = [TableCodecs(BoundedRows(0.01, relative_to="range"), ROUNDED)] * 3
    saved = without_noise(trained(ranks, codecs_T, steps=2, hot=hot))
    # ranks agree in steps 1, 2 and 4, before they update rows: two updates are not told yet
    other, fresh = trained(ranks, codecs_T, steps=3, hot=hot), made(ranks, codecs_T, hot=hot)
    assert all(noise_R.all() for noise_R in noise_of(other))
    for rank in other.engines[0].ranks:
        assert rank.shards.noise.state()["updates"] == 2
        assert np.any(rank.shards.noise.state()["figures"])
    for embeddings in (other, fresh):
        embeddings.load_state_dict(saved)
    for rank in other.engines[0].ranks:
        assert not rank.shards.noise.variance_R.any()
        assert rank.shards.noise.state()["updates"] == 0
        assert not np.any(rank.shards.noise.state()["figures"])
    assert other.engines[0].bounds_state() == fresh.engines[0].bounds_state()
    for step in range(2, 5):
        for embeddings in (other, fresh):
            train(embeddings, all_once(3, seed=step), gradients(96, 3, step))
        assert other.engines[0].bounds_state() == fresh.engines[0].bounds_state()
    for mine, theirs in zip(noise_of(other), noise_of(fresh), strict=True):
        assert torch.equal(mine, theirs)


# ---- one by one ---------------------------------------------------------------------------------


def test_contributions_have_the_step_of_their_part_unless_they_are_exact():
    rounded = RoundedContributions.of(
        np.array([1, 0, 1, 2]),
        np.array([0.5, 0.25, 0], np.float32),
        np.array([False, False, True, False]),
        samples=7,
    )
    assert rounded.grid_step_C.tolist() == [0.25, 0.5, 0, 0]
    assert rounded.grid_step_C.dtype == np.float32
    more = RoundedContributions(np.array([2]), np.array([8], np.float32), 5)
    joined = RoundedContributions.joined([rounded, more])
    assert joined.part_C.tolist() == [1, 0, 1, 2, 2]
    assert joined.grid_step_C.tolist() == [0.25, 0.5, 0, 0, 8]
    assert joined.grid_step_C.dtype == np.float32
    assert joined.samples == 12


def count_of(counted_P=(True, True)):
    """A count of three rows after two updates of row 1 by (3, 3), of part 1 and a step of 6."""
    count = NoiseCount(3, np.array(counted_P), np.dtype(np.float32))
    for _ in range(2):
        rounded = RoundedContributions(np.array([1]), np.array([6], np.float32), 10)
        update, rows = RowUpdate(Optimizer.SGD, 1.0, 0.0), np.array([1])
        table = RowTable(np.zeros((3, 2), np.float32), None)
        gradient = np.full((1, 2), 3, np.float32)
        active().update_rows(table, rows, np.array([0]), gradient, None, update, count.operand(rounded))
    return count


def test_figures_are_means_of_updates_and_taken_once():
    """A step of 6 has a variance of 6, the square is 9: a signal of 3, times 10 samples."""
    count = count_of()
    assert count.variance_R.tolist() == [0, 12, 0]
    assert count.take().tolist() == [[0, 30 * 6 / 2], [0, 30]]
    assert count.take().tolist() == [[0, 0], [0, 0]]
    assert count.variance_R.tolist() == [0, 12, 0]


def test_parts_that_another_rank_counts_are_left_out():
    assert count_of((True, False)).take().tolist() == [[0, 0], [0, 0]]
    assert count_of((False, True)).take().tolist() == [[0, 90], [0, 30]]


def test_replicated_parts_are_counted_by_the_first_rank():
    for rank in range(2):
        embeddings = made_local(TABLES, DIM, 2, optimizer=SGD(1.0))
        noise = embeddings.engines[0].ranks[rank].shards.noise
        noise.restore({"figures": [[1, 2], [3, 4], [5, 6]], "updates": 1})
        assert noise.take().tolist() == [[1, 3, 5 * (rank == 0)], [2, 4, 6 * (rank == 0)]]


def test_a_state_of_a_count_is_a_copy_and_brings_it_back():
    count = count_of()
    state = count.state()
    figures = count.take().tolist()
    other = NoiseCount(3, np.ones(2, bool), np.dtype(np.float32))
    other.restore(state)
    assert other.state() == state
    assert other.take().tolist() == figures


def test_several_ranks_of_a_process_agree_on_the_cost():
    embeddings = trained(3, [TableCodecs(None, ROUNDED)] * 3)
    noises = [rank.rows.scales.noise_2P.tolist() for rank in embeddings.engines[0].ranks]
    assert noises == noises[:1] * 3
