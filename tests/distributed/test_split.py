"""Splits between real ranks: exact ones change nothing, thresholded ones do what one process does, to the bit."""

from __future__ import annotations

import re

import pytest
import torch

from laconic.codecs import Bounded, Cast
from laconic.codecs.threshold import Threshold
from laconic.errors import ConfigError
from laconic.exchange.ranks.split_wire import HEADER_BYTES
from laconic.nn import LocalDividedMlp, LocalSplit, Split, SplitLayer
from laconic.nn.divided_mlp import divide_neurons
from tests.distributed import split_ranks
from tests.distributed.ranks import run_ranks
from tests.distributed.split_ranks import train_in_one

EXACT = Threshold.exact()
CODED = Threshold(0.3)
PLAIN_VALUES = Threshold(0.2, method="topk", values=None, gradients=None)
BITS = Threshold(0.2, mask="bits", values=None, gradients=None)
every_threshold = pytest.mark.parametrize(
    "threshold", [EXACT, CODED, PLAIN_VALUES, BITS], ids=["exact", "coded", "topk", "bits"]
)


@every_threshold
def test_stages_on_two_ranks_train_what_one_process_does(threshold):
    (_, before, _), (losses, after, _) = run_ranks(2, split_ranks.train_stages, threshold)
    expected, weights = train_in_one("stages", 2, None if threshold == EXACT else threshold)
    assert losses == expected
    named = list(weights.values())
    # bottom and the first top layer are before the split, then come the rest of the top MLP and the logit
    for actual, whole in zip([*before, *after], named, strict=True):
        assert torch.equal(actual, whole)


@every_threshold
def test_divided_neurons_train_what_one_process_does(threshold):
    parts = run_ranks(3, split_ranks.train_divided, threshold)
    expected, weights = train_in_one("divided", 3, threshold)
    assert parts[0][0] == expected
    for name, layer in ((name, f"{name}.layers.{k}") for name in ("bottom", "top") for k in range(2)):
        for kind in ("weight", "bias"):
            k = layer[-1]
            actual = torch.cat([part[1][f"{name}.{k}.{kind}"] for part in parts])
            assert torch.equal(actual, weights[f"{layer}.{kind}"]), (layer, kind)


def test_exactly_divided_neurons_train_the_whole_model_up_to_the_order_of_sums():
    expected, weights = train_in_one("whole", 1, None)
    losses, divided = train_in_one("divided", 3, EXACT)
    assert losses == pytest.approx(expected, rel=1e-5)
    for whole, part in zip(weights.values(), divided.values(), strict=True):
        assert torch.allclose(whole, part, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("threshold", [EXACT, CODED], ids=["exact", "coded"])
def test_replicas_of_a_split_model_stay_equal_under_ddp(threshold):
    results = run_ranks(4, split_ranks.train_replicas, threshold)
    start = list(split_ranks.make_model().parameters())
    for stage in (0, 1):
        for mine, other in zip(results[stage], results[stage + 2], strict=True):
            assert torch.equal(mine, other)
    trained = [*results[0], *results[1]]
    assert all(not torch.equal(a, b) for a, b in zip(trained, start, strict=True))


@pytest.mark.parametrize("mask", ["coded", "bits"])
def test_the_gradient_comes_back_on_the_entries_that_went_and_only_there(mask):
    x = torch.tensor([[3.0, -4.0, 1.0, 0.0], [0.5, 0.25, -8.0, 0.125]])
    gradient = torch.arange(1.0, 9.0).view(2, 4)
    threshold = Threshold(0.5, method="topk", mask=mask, values=None, gradients=None)
    (shape, back, _), (arrived, wants, _) = run_ranks(2, split_ranks.pass_once, x, gradient, threshold)
    assert shape == (2, 0)
    assert wants
    assert arrived.tolist() == [[3, -4, 0, 0], [0.5, 0, -8, 0]]
    assert back.tolist() == [[1, 2, 0, 0], [5, 0, 7, 0]]


@pytest.mark.parametrize("threshold", [CODED, PLAIN_VALUES, EXACT], ids=["coded", "topk", "exact"])
def test_nan_and_infinities_travel_both_ways(threshold):
    odd = [float("nan"), float("inf"), -float("inf")]
    x, gradient = torch.randn(5, 40), torch.randn(5, 40)
    x[2, :3], gradient[2, :3] = torch.tensor(odd), torch.tensor(odd)
    (_, back, _), (arrived, _, _) = run_ranks(2, split_ranks.pass_once, x, gradient, threshold)
    for values in (back, arrived):
        assert values[2, 0].isnan()
        assert values[2, 1:3].tolist() == odd[1:]
        assert values[[0, 1, 3, 4]].isfinite().all()


def test_the_ledger_counts_masks_values_gradients_and_headers():
    x, gradient = torch.randn(64, 100), torch.randn(64, 100)
    threshold = Threshold(0.1, method="topk", values=Cast("fp16"), gradients=None)
    (_, _, sent), (_, _, returned) = run_ranks(2, split_ranks.pass_once, x, gradient, threshold)
    source, target = ({row["direction"]: row for row in rows} for rows in (sent, returned))
    assert source["forward"]["bytes_before"] == target["backward"]["bytes_before"] == 4 * 6400
    assert source["forward"]["bytes_sent"] == 2 * 640 + HEADER_BYTES
    assert target["backward"]["bytes_sent"] == 4 * 640 + HEADER_BYTES
    selection, _ = threshold.select(x.numpy())
    assert source["ids"]["bytes_sent"] == len(selection.encode())
    assert target["forward"]["steps"] == source["backward"]["steps"] == 0


def test_evaluation_sends_the_same_and_is_not_counted():
    (_, anchor, sent, _, back), (wants, first, _, again, _) = run_ranks(2, split_ranks.evaluate, "eval")
    assert not wants
    assert again
    assert anchor.shape == (2, 0)
    assert sent == 0
    assert first.tolist() == [[0, 0, 2, 3], [0, 0, 6, 7]]
    assert (back != 0).tolist() == [[False, False, True, True]] * 2


def test_what_needs_no_gradient_gets_none():
    (_, _), (wants, arrived) = run_ranks(2, split_ranks.evaluate, "frozen")
    assert not wants
    assert arrived.tolist() == [[0, 0, 2, 3], [0, 0, 6, 7]]


# ---- when something is wrong ----------------------------------------------------------------------


def errors_of(ranks, function, *args):
    return [
        (outcome[0], outcome[1]) if outcome is not None else None
        for outcome in run_ranks(ranks, function, *args, check=False)
    ]


def test_a_rank_without_gradients_is_told_that_another_waits_for_them():
    lost, error = errors_of(2, split_ranks.one_without_gradients)
    assert error == (
        "CommError",
        "split: rank 0 waits for a gradient of turn 0, but rank 1 computes none; use torch.no_grad() on all ranks or on none",
    )
    assert "lost a peer" in lost[1]


@pytest.mark.parametrize("what", ["threshold", "turn"])
def test_ranks_that_differ_do_not_take_one_anothers_bytes(what):
    lost, (kind, text) = errors_of(2, split_ranks.differ, what)
    assert kind == "CommError"
    assert re.match(
        r"split: rank 0 is at turn 0 of split [0-9a-f]{16}, rank 1 at turn \d of split [0-9a-f]{16}; make the same",
        text,
    )
    assert "lost a peer" in lost[1]


def test_ranks_with_different_batches_say_so():
    texts = [text for _, text in errors_of(2, split_ranks.different_batches)]
    said = r"split: rank \d sent [23] samples at turn 0, others [23]; the ranks have different batches"
    assert any(re.fullmatch(said, text) for text in texts)  # the other may only see that a peer is gone


@pytest.mark.parametrize("when", ["target", "source", "backward"])
def test_a_rank_that_vanishes_is_a_lost_peer_to_the_other(when):
    outcomes = errors_of(2, split_ranks.vanish, when)
    left = 1 if when == "source" else 0
    assert outcomes[1 - left] is None
    kind, text = outcomes[left]
    assert kind == "CommError"
    assert re.match(rf"split, turn 0: rank {left} lost a peer \(.+\); a rank or a link is down", text)


@pytest.mark.parametrize(
    ("what", "rank", "text"),
    [
        (
            "float64",
            0,
            "split: expected float32 on the CPU, got torch.float64 on cpu; convert with x.float().cpu()",
        ),
        (
            "bfloat16",
            0,
            "split: expected float32 on the CPU, got torch.bfloat16 on cpu; convert with x.float().cpu()",
        ),
        (
            "one dimension",
            0,
            "split: expected activations of shape (samples, columns), got (4,); use x.flatten(1)",
        ),
        (
            "three dimensions",
            0,
            "split: expected activations of shape (samples, columns), got (4, 2, 2); use x.flatten(1)",
        ),
        ("nothing", 0, "split: rank 0 is a source, which gives activations, got NoneType"),
        ("target gives", 1, "split: rank 1 is only a target, which gives no activations, got Tensor"),
    ],
)
def test_what_cannot_travel_is_refused(what, rank, text):
    assert errors_of(2, split_ranks.misuse, what)[rank] == ("ConfigError", text)


def test_a_rank_that_has_no_part_in_a_split_is_refused():
    assert errors_of(3, split_ranks.misuse, "outsider")[2] == (
        "ConfigError",
        "split: rank 2 is neither a source (0,) nor a target (1,); a replica makes splits between its own ranks",
    )


def test_a_split_without_a_process_group_is_refused():
    with pytest.raises(ConfigError, match="expected a process group, got none"):
        Split(0, 1)


# ---- in one process -------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [(), (0, 0), (-1,)])
def test_ranks_are_one_or_more_and_different(ranks):
    with pytest.raises(ConfigError, match="expected source as one or more different ranks"):
        LocalSplit(ranks, 1)


def test_neurons_are_divided_evenly_and_completely():
    for neurons in (0, 1, 2, 7, 512):
        for ranks in (1, 2, 3):
            parts = divide_neurons(neurons, ranks)
            assert [n for part in parts for n in range(neurons)[part]] == list(range(neurons))
            widths = [part.stop - part.start for part in parts]
            assert max(widths) - min(widths) <= 1


def test_only_linear_layers_with_relus_are_divided():
    mlp = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sigmoid())
    with pytest.raises(
        ConfigError, match=r"expected an nn.Sequential of nn.Linear with bias and nn.ReLU in turns"
    ):
        LocalDividedMlp(mlp, 2)


def test_rounded_gradients_are_right_on_average():
    split = SplitLayer(
        threshold=Threshold(1.0, values=None, gradients=Bounded(1.0, relative_to="rms", rounding="unbiased")),
    )
    gradient, total, passes = torch.randn(8, 16), torch.zeros(8, 16), 400
    for _ in range(passes):
        x = torch.ones(8, 16, requires_grad=True)
        split(x).backward(gradient)
        total += x.grad
    rms = gradient.square().mean().sqrt()
    # one rounding errs by at most the bound, hence has a standard deviation of at most half of it
    assert ((total / passes - gradient).abs() < 5 * rms / 2 / passes**0.5).all()


def test_modules_have_no_state_to_save():
    assert SplitLayer().state_dict() == {}
