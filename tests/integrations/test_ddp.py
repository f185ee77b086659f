"""The DDP hook: exact where it should be, large entries first where asked, and nothing is lost on the way."""

from __future__ import annotations

import re
from contextlib import nullcontext

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import laconic
from laconic.cost.link import Link
from laconic.errors import ConfigError
from laconic.reduce import LargeFirst, Levels
from laconic.reduce import reducer as reducer_module
from tests.distributed.ranks import run_ranks

STEPS = 4


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 200), nn.ReLU(), nn.Linear(200, 60), nn.ReLU(), nn.Linear(60, 1))


def batch(rank, step, samples=16):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(samples, 40, generator=generator)
    return x, x[:, :1] * 2 - x[:, 1:2]


def train(rank, model, steps=STEPS, accumulate=1, start=0):
    """Return the gradients of every step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    seen = []
    for step in range(start, start + steps):
        optimizer.zero_grad()
        for part in range(accumulate):
            x, y = batch(rank, accumulate * step + part)
            with model.no_sync() if part < accumulate - 1 else nullcontext():
                nn.functional.mse_loss(model(x), y).backward()
        seen.append([p.grad.clone() for p in model.parameters()])
        optimizer.step()
    return seen


def wrapped(**settings):
    return DistributedDataParallel(make_model(), bucket_cap_mb=0.02, **settings)


def close(a, b, tolerance):
    return all(
        torch.allclose(x, y, atol=tolerance, rtol=tolerance)
        for one, two in zip(a, b, strict=True)
        for x, y in zip(one, two, strict=True)
    )


def over_a_known_link(ranks, function, *args):
    """Run it on ranks that need not measure their link, which takes longer than most of these tests."""
    return run_ranks(ranks, _over_a_known_link, function, args)


def _over_a_known_link(rank, ranks, function, args):
    reducer_module.probe_link = lambda transport: Link(1e-4, 1e9)
    return function(rank, ranks, *args)


def _exact(rank, ranks, accumulate):
    plain, ours = wrapped(), wrapped()
    compressor = laconic.register_ddp(ours, bypass=False)
    return close(
        train(rank, plain, accumulate=accumulate), train(rank, ours, accumulate=accumulate), 1e-6
    ), compressor.report()


@pytest.mark.parametrize(("ranks", "accumulate"), [(1, 1), (3, 1), (2, 3)])
def test_unless_asked_gradients_are_those_of_ddp(ranks, accumulate):
    for same, report in run_ranks(ranks, _exact, accumulate):
        assert same
        assert report.steps == STEPS


def _as_ddp(rank, ranks):
    plain, ours = wrapped(), wrapped()
    laconic.register_ddp(ours, warmup=STEPS)
    return [
        torch.equal(x, y)
        for one, two in zip(train(rank, plain), train(rank, ours), strict=True)
        for x, y in zip(one, two, strict=True)
    ]


def test_what_bypasses_has_the_bits_of_ddp():
    for same in over_a_known_link(3, _as_ddp):
        assert all(same)


CODEC = laconic.Bounded(0.35, relative_to="rms", rounding="unbiased")


def _replicas_agree(rank, ranks, how):
    model = wrapped()
    laconic.register_ddp(model, **how, bypass=False)
    train(rank, model, 8)
    return [p.detach().numpy().tobytes() for p in model.parameters()]


@pytest.mark.parametrize("how", [{"method": LargeFirst(0.02)}, {"method": CODEC}])
def test_replicas_stay_equal_to_the_bit(how):
    results = over_a_known_link(3, _replicas_agree, how)
    assert all(result == results[0] for result in results)


def _lossless(rank, ranks):
    exact, ours = wrapped(), wrapped()
    laconic.register_ddp(exact, laconic.Exact(), bypass=False)
    compressor = laconic.register_ddp(ours, laconic.Lossless(), bypass=False)
    same = [
        x.numpy().tobytes() == y.numpy().tobytes()
        for one, two in zip(train(rank, exact), train(rank, ours), strict=True)
        for x, y in zip(one, two, strict=True)
    ]
    return same, compressor.report().ratio


def test_a_lossless_codec_changes_no_bit():
    for same, ratio in over_a_known_link(3, _lossless):
        assert all(same)
        assert ratio > 1.1


def _part_of_the_job(rank, ranks, how):
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    replica, part = divmod(rank, 2)
    model = wrapped(process_group=groups[part])
    laconic.register_ddp(model, bypass=False, **how)
    train(2 * part + replica, model)  # parts have other batches, hence other weights
    dist.barrier()  # the first rank keeps the addresses that the other part may still ask for
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize(
    "how", [{"method": LargeFirst(0.02)}, {"method": laconic.Exact()}], ids=["large", "exact"]
)
def test_a_model_may_be_on_some_ranks_only(how):
    mine = over_a_known_link(4, _part_of_the_job, how)
    for part, expected in enumerate(over_a_known_link(2, _same_alone, how)[0]):
        for replica in (part, part + 2):
            assert all(torch.equal(a, b) for a, b in zip(mine[replica], expected, strict=True))


def _same_alone(rank, ranks, how):
    models = [wrapped(), wrapped()]
    for part, model in enumerate(models):
        laconic.register_ddp(model, bypass=False, **how)
        train(2 * part + rank, model)
    return [[p.detach() for p in model.parameters()] for model in models]


def _nothing_lost(rank, ranks, values):
    """Gradients of frozen weights: what was sent and what waits is all that there was."""
    model, plain = wrapped(), wrapped()
    how = LargeFirst(0.05, values=values, refresh=3)
    compressor = laconic.register_ddp(model, how, reduction="sum", bypass=False)
    plain.register_comm_hook(None, laconic.sum_gradients)
    totals = [[torch.zeros_like(p) for p in model.parameters()] for _ in range(2)]
    for step in range(8):
        for total, one in zip(totals, (model, plain), strict=True):
            one.zero_grad()
            x, y = batch(rank, step)
            nn.functional.mse_loss(one(x), y).backward()
            for t, p in zip(total, one.parameters(), strict=True):
                t.add_(p.grad)
    held = compressor.state_dict()["memory"]
    for name, total in zip((n for n, _ in model.module.named_parameters()), totals[0], strict=True):
        waiting = held[name].view_as(total)
        dist.all_reduce(waiting)
        total.add_(waiting)
    return close([totals[0]], [totals[1]], 1e-4), compressor.report()


@pytest.mark.parametrize("values", [None, laconic.Bounded(0.3, relative_to="rms"), laconic.Cast("fp16")])
def test_what_is_not_sent_waits_and_is_not_lost(values):
    for same, report in over_a_known_link(2, _nothing_lost, values):
        assert same
        assert report.ratio > 5


def _some_exact(rank, ranks):
    plain, ours = wrapped(), wrapped()
    compressor = laconic.register_ddp(ours, LargeFirst(0.01), exclude=["*.bias", "4.*"], bypass=False)
    (first,), (second,) = train(rank, plain, 1), train(rank, ours, 1)
    names = [name for name, _ in plain.module.named_parameters()]
    equal = {n: torch.allclose(a, b, atol=1e-6) for n, a, b in zip(names, first, second, strict=True)}
    return equal, sorted(compressor.state_dict()["memory"])


def test_parameters_that_are_left_out_stay_exact():
    for equal, memory in over_a_known_link(2, _some_exact):
        assert memory == ["0.weight", "2.weight"]
        assert [name for name, same in equal.items() if not same] == ["0.weight", "2.weight"]


def _bounded(rank, ranks):
    plain, ours = wrapped(), wrapped()
    compressor = laconic.register_ddp(ours, CODEC, exclude=["*.bias"], bypass=False)
    (first,), (second,) = train(rank, plain, 1), train(rank, ours, 1)
    names = [name for name, _ in plain.module.named_parameters()]
    errors = {n: float((a - b).abs().max()) for n, a, b in zip(names, first, second, strict=True)}
    return (
        errors,
        {n: float(a.pow(2).mean().sqrt()) for n, a in zip(names, first, strict=True)},
        compressor.report(),
    )


def test_a_codec_keeps_its_bound_and_leaves_out_what_it_should():
    for errors, rms, report in over_a_known_link(2, _bounded):
        for name, error in errors.items():
            if name.endswith("bias"):
                assert error < 1e-6
            else:  # the mean of two ranks' gradients, each within its own root mean square
                assert 0 < error < 0.35 * 2 * rms[name]
        assert report.ratio > 4


def _warm(rank, ranks):
    plain, ours = wrapped(), wrapped()
    compressor = laconic.register_ddp(ours, LargeFirst(0.01), warmup=3, bypass=False)
    first, second = train(rank, plain, 5), train(rank, ours, 5)
    return [close([a], [b], 1e-6) for a, b in zip(first, second, strict=True)], compressor.report()


def test_the_first_steps_are_exact():
    for same, report in over_a_known_link(2, _warm):
        assert same[:3] == [True] * 3
        assert not any(same[3:])
        assert report.bypassed


def _resume(rank, ranks):
    def fresh():
        model = wrapped()
        return model, laconic.register_ddp(model, LargeFirst(0.03), bypass=False)

    whole, _ = fresh()
    train(rank, whole, 6)
    half, compressor = fresh()
    train(rank, half, 3)
    saved, weights = compressor.state_dict(), half.state_dict()
    rest, compressor = fresh()
    rest.load_state_dict(weights)
    compressor.load_state_dict(saved)
    train(rank, rest, 3, start=3)
    return all(torch.equal(a, b) for a, b in zip(whole.parameters(), rest.parameters(), strict=True))


def test_memory_survives_a_checkpoint_to_the_bit():
    assert over_a_known_link(2, _resume) == [True, True]


def _sparse_model(rank, ranks):
    """Embedding gradients are zero but for a few rows: where the link is slow, they travel as those rows."""
    reducer_module.probe_link = lambda wire: Link(1e-4, 1e7)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(5000, 64), nn.Flatten(), nn.Linear(64, 1)))
    compressor = laconic.register_ddp(model, bypass=False)
    for step in range(3):
        ids = torch.randint(0, 5000, (32, 1), generator=torch.Generator().manual_seed(7 * step + rank))
        model.zero_grad()
        model(ids).sum().backward()
    return compressor.report()


def test_gradients_of_few_rows_are_small_without_being_asked():
    for report in run_ranks(2, _sparse_model):
        assert report.ratio > 20


def _fast_link(rank, ranks):
    model = wrapped()
    compressor = laconic.register_ddp(model)
    train(rank, model)
    return compressor.report()


def test_where_nothing_is_gained_ddp_sends_as_ever():
    for report in run_ranks(2, _fast_link):
        assert report.bypassed


def _link_becomes_slow(rank, ranks):
    found = [Link(1e-6, 1e15), Link(1e-3, 1e3)]
    reducer_module.probe_link = lambda wire: found[0]
    model = wrapped()
    compressor = laconic.register_ddp(model, Levels())
    counts = []
    for change in (lambda: None, lambda: found.pop(0), compressor.look_again):
        change()
        before = compressor.bypassed
        train(rank, model, 3)
        counts.append(compressor.bypassed - before)
    return counts


def test_a_link_that_has_changed_counts_after_another_look():
    for fast, slow, looked_again in run_ranks(2, _link_becomes_slow):
        assert fast > 0
        assert slow >= fast  # nobody has looked
        assert looked_again == 0


def _a_rank_dies(rank, ranks):
    model = wrapped()
    laconic.register_ddp(model, LargeFirst(0.01), bypass=False)
    train(rank, model, 2)
    if rank == 1:
        return "gone"
    try:
        train(rank, model, 2)
    except RuntimeError as error:
        return type(error).__name__, str(error)


def test_a_lost_peer_is_an_error_in_its_own_words():
    kind, text = over_a_known_link(2, _a_rank_dies)[0]
    assert kind == "CommError"
    assert re.match(r"^all-reduce \d, turn \d+: rank 0 lost a peer \([^(]+\); .+ with --resume$", text)


class _Adder:
    """A network that gloo plays: it counts what it is asked for."""

    bytes_sent = 0

    def add(self, values) -> None:
        dist.all_reduce(torch.from_numpy(values))
        self.bytes_sent += values.nbytes

    def unite(self, words) -> None:
        every = [torch.empty(len(words), dtype=torch.int32) for _ in range(dist.get_world_size())]
        dist.all_gather(every, torch.from_numpy(words.view(np.int32)))
        words[:] = np.bitwise_or.reduce([one.numpy().view(np.uint32) for one in every])
        self.bytes_sent += words.nbytes


def _networked(rank, ranks):
    by_ranks, by_network, adder = wrapped(), wrapped(), _Adder()
    laconic.register_ddp(by_ranks, laconic.Rounded())
    laconic.register_ddp(by_network, adder)
    first, second = train(rank, by_ranks), train(rank, by_network)
    same = all(
        torch.equal(x, y)
        for one, two in zip(first, second, strict=True)
        for x, y in zip(one, two, strict=True)
    )
    return same, adder.bytes_sent


def test_a_network_that_is_given_is_used_and_adds_what_ranks_would():
    for same, sent in over_a_known_link(3, _networked):
        assert same
        assert sent >= STEPS * 4 * sum(p.numel() for p in make_model().parameters())


def _contradictory(rank, ranks):
    with pytest.raises(ConfigError, match="leave no parameter"):
        laconic.register_ddp(wrapped(), LargeFirst(), exclude=["*"])
    return True


def test_contradictions_are_refused():
    assert run_ranks(1, _contradictory) == [True]


def _lossless_by_default(rank, ranks):
    """The one line: the bits of DDP, and fewer bytes where the link is slow."""
    reducer_module.probe_link = lambda wire: Link(1e-4, 1e7)
    plain, ours = wrapped(), wrapped()
    compressor = laconic.register_ddp(ours)
    first, second = train(rank, plain), train(rank, ours)
    same = [
        torch.equal(x, y)
        for one, two in zip(first, second, strict=True)
        for x, y in zip(one, two, strict=True)
    ]
    return all(same), compressor.report().ratio, repr(compressor)


def test_without_a_method_no_bit_changes_on_two_ranks_and_fewer_bytes_travel():
    for same, ratio, shown in run_ranks(2, _lossless_by_default):
        assert same
        assert ratio > 1.1
        assert shown.startswith("Compressor(lossless, parameters=6, ranks=2, step=")


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ConfigError, match="expected a DistributedDataParallel"):
        laconic.register_ddp(make_model())
    for bad in ({"keep": 0}, {"keep": 1.5}, {"refresh": 0}, {"drift": 0.5}, {"sample": 0}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            LargeFirst(**bad)


def _closed_again(rank, ranks):
    groups = len(dist.distributed_c10d._world.pg_map)
    first, second = laconic.register_ddp(wrapped()), laconic.register_ddp(wrapped())
    for _ in range(2):
        first.close()
    left = len(dist.distributed_c10d._world.pg_map) - groups
    dist.barrier()
    dist.destroy_process_group()
    for compressor in (first, second):
        compressor.close()
    return left


def test_a_compressor_may_be_closed_again_and_after_all_process_groups():
    left = run_ranks(2, _closed_again)
    assert left[0] == left[1] == 1  # the one that all lanes share
