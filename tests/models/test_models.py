"""What every model owes to training, and what each one computes."""

from __future__ import annotations

import itertools

import pytest
import torch

from laconic.errors import ConfigError
from laconic.models import DLRM, DCNv2, Model
from tests.cases import each

BUILDERS = {
    "dlrm": lambda dense, tables, dim: DLRM(dense=dense, tables=tables, dim=dim, bottom=(7,), top=(6, 5)),
    "dlrm, no hidden layers": lambda dense, tables, dim: DLRM(
        dense=dense, tables=tables, dim=dim, bottom=(), top=()
    ),
    "dcn_v2": lambda dense, tables, dim: DCNv2(dense=dense, tables=tables, dim=dim, deep=(6, 5)),
    "dcn_v2, low rank": lambda dense, tables, dim: DCNv2(
        dense=dense, tables=tables, dim=dim, deep=(6,), rank=2
    ),
    "dcn_v2, parallel": lambda dense, tables, dim: DCNv2(
        dense=dense, tables=tables, dim=dim, deep=(6,), structure="parallel"
    ),
    "dcn_v2, bottom": lambda dense, tables, dim: DCNv2(
        dense=dense, tables=tables, dim=dim, bottom=(5,) if dense else (), deep=()
    ),
}


@pytest.fixture(params=BUILDERS)
def build(request):
    torch.manual_seed(3)
    return BUILDERS[request.param]


def inputs(samples, dense, tables, dim, dtype=torch.float32):
    generator = torch.Generator().manual_seed(5)
    dense_BF = torch.randn(samples, dense, generator=generator, dtype=dtype)
    embeddings_BTD = torch.randn(samples, tables, dim, generator=generator, dtype=dtype)
    return dense_BF, embeddings_BTD.requires_grad_()


def test_a_model_is_a_model(build):
    assert isinstance(build(3, 4, 2), Model)


@each("dense", [0, 1, 3])
@each("samples", [0, 1, 6])
def test_one_logit_comes_out_for_each_sample(build, dense, samples):
    model = build(dense, 4, 2)
    assert model(*inputs(samples, dense, 4, 2)).shape == (samples,)


@each("dense", [0, 3])
def test_a_rank_without_samples_has_gradients_of_zero(build, dense):
    model = build(dense, 4, 2)
    dense_BF, embeddings_BTD = inputs(0, dense, 4, 2)
    model(dense_BF, embeddings_BTD).sum().backward()
    assert embeddings_BTD.grad.shape == (0, 4, 2)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.equal(parameter.grad, torch.zeros_like(parameter)), name


@each("dense", [0, 3])
def test_every_parameter_takes_part(build, dense):
    model = build(dense, 4, 2)
    model(*inputs(64, dense, 4, 2)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@each("dense", [0, 2])
def test_gradients_are_right_in_float64(build, dense):
    model = build(dense, 3, 2).double()
    dense_BF, embeddings_BTD = inputs(3, dense, 3, 2, torch.float64)
    assert model(dense_BF, embeddings_BTD).dtype == torch.float64
    names, values = zip(*model.named_parameters(), strict=True)

    def logits(embeddings_BTD, *values):
        return torch.func.functional_call(
            model, dict(zip(names, values, strict=True)), (dense_BF, embeddings_BTD)
        )

    assert torch.autograd.gradcheck(logits, (embeddings_BTD, *values))


def test_samples_do_not_see_each_other(build):
    model = build(3, 4, 2).double()
    dense_BF, embeddings_BTD = inputs(9, 3, 4, 2, torch.float64)
    order = torch.randperm(9)
    expected = model(dense_BF, embeddings_BTD)[order]
    # Eight sums of a few dozen terms near 1, in another order: far below 1e-12.
    assert (model(dense_BF[order], embeddings_BTD[order]) - expected).abs().max() < 1e-12


def test_the_parts_make_the_whole(build):
    model = build(3, 4, 2)
    dense_BF, embeddings_BTD = inputs(5, 3, 4, 2)
    parts = model.head(model.dense_part(dense_BF), embeddings_BTD)
    assert torch.equal(parts, model(dense_BF, embeddings_BTD))


def test_a_checkpoint_holds_parameters_and_nothing_else(build):
    model = build(3, 4, 2)
    assert list(model.state_dict()) == [name for name, _ in model.named_parameters()]


def test_the_same_seed_starts_the_same_model(build):
    states = []
    for _ in range(2):
        torch.manual_seed(11)
        states.append(build(3, 4, 2).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@each("dense", [0, 3])
def test_dlrm_feeds_the_top_with_the_dense_vector_and_the_dots_of_all_pairs(dense):
    model = DLRM(dense=dense, tables=4, dim=2, bottom=(), top=()).double()
    dense_BF, embeddings_BTD = inputs(5, dense, 4, 2, torch.float64)
    seen = []
    model.logit.register_forward_hook(lambda _, given, __: seen.append(given[0]))
    model(dense_BF, embeddings_BTD)
    part_BD = model.dense_part(dense_BF)
    vectors = ([part_BD] if dense else []) + list(embeddings_BTD.unbind(1))
    dots = [
        (vectors[i] * vectors[j]).sum(1, keepdim=True)
        for i, j in itertools.product(range(len(vectors)), repeat=2)
        if j < i
    ]
    expected = torch.cat([part_BD, *dots], dim=1)
    # Sums of two products, fused or not: a few units in the last place of numbers below 100.
    assert (seen[0] - expected).abs().max() < 1e-13


def test_dlrm_starts_like_the_reference():
    torch.manual_seed(0)
    layer = DLRM(dense=400, tables=2, dim=8, bottom=(500,)).bottom[0]
    # Standard error of a deviation from n draws is 1 / sqrt(2n) of it; allow five.
    assert abs(layer.weight.std() / (2 / 900) ** 0.5 - 1) < 5 / (2 * layer.weight.numel()) ** 0.5
    assert abs(layer.bias.std() / (1 / 500) ** 0.5 - 1) < 5 / (2 * layer.bias.numel()) ** 0.5


def test_a_cross_layer_multiplies_with_the_input():
    model = DCNv2(dense=1, tables=1, dim=2, cross=1, deep=()).double()
    dense_BF, embeddings_BTD = inputs(4, 1, 1, 2, torch.float64)
    x_BN = torch.cat([dense_BF, embeddings_BTD[:, 0]], dim=1)
    (layer,) = model.cross
    expected = model.logit(x_BN * (x_BN @ layer.weight.T + layer.bias) + x_BN).squeeze(1)
    assert (model(dense_BF, embeddings_BTD) - expected).abs().max() < 1e-13


def test_low_rank_has_fewer_parameters():
    full, low = (DCNv2(dense=4, tables=8, dim=8, deep=(), rank=rank) for rank in (None, 2))
    count = [sum(p.numel() for p in model.parameters()) for model in (full, low)]
    assert count[0] - count[1] == 3 * (68 * 68 - 2 * 68 * 2)


@each(
    ("make", "message"),
    [
        (lambda: DLRM(dense=1, tables=0, dim=4), "dlrm.tables: expected a number >= 1, got 0"),
        (lambda: DLRM(dense=1, tables=2, dim=0), "dlrm.dim: expected a number >= 1, got 0"),
        (lambda: DLRM(dense=-1, tables=2, dim=4), "dlrm.dense: expected a number >= 0, got -1"),
        (
            lambda: DLRM(dense=1, tables=2, dim=4, top=(8, 0)),
            "dlrm.top: expected layer sizes >= 1, got (8, 0)",
        ),
        (
            lambda: DLRM(dense=0, tables=1, dim=4),
            "dlrm: 1 table and no dense features leave no pair to interact; add either, or use DCNv2",
        ),
        (lambda: DCNv2(dense=1, tables=0, dim=4), "dcn_v2.tables: expected a number >= 1, got 0"),
        (lambda: DCNv2(dense=1, tables=2, dim=0), "dcn_v2.dim: expected a number >= 1, got 0"),
        (lambda: DCNv2(dense=1, tables=2, dim=4, cross=0), "dcn_v2.cross: expected a number >= 1, got 0"),
        (lambda: DCNv2(dense=1, tables=2, dim=4, rank=0), "dcn_v2.rank: expected a number >= 1, got 0"),
        (
            lambda: DCNv2(dense=1, tables=2, dim=4, structure="both"),
            "dcn_v2.structure: no such structure 'both' (known: stacked, parallel)",
        ),
        (
            lambda: DCNv2(dense=0, tables=2, dim=4, bottom=(8,)),
            "dcn_v2.bottom: no dense features to feed it, got (8,); leave it empty",
        ),
    ],
)
def test_nonsense_is_refused(make, message):
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value) == message


def test_embeddings_of_other_tables_are_refused(build):
    model = build(3, 4, 2)
    for shape in [(5, 5, 2), (5, 4, 3), (5, 8)]:
        with pytest.raises(ConfigError, match=r"expected embeddings of shape \(samples, 4, 2\), got \(5, "):
            model(torch.randn(5, 3), torch.randn(shape))
