"""What ranks of a split model do in the tests: a small DLRM, whole, in stages, or with its neurons divided."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from laconic.codecs.threshold import Threshold
from laconic.models import DLRM
from laconic.nn import DividedMlp, LocalDividedMlp, Split, SplitLayer

DENSE, TABLES, DIM = 3, 4, 6
BATCHES = (16, 7, 0, 1, 16)
"""Samples of each step: uneven and empty ones among them."""


def make_model() -> DLRM:
    torch.manual_seed(5)
    return DLRM(dense=DENSE, tables=TABLES, dim=DIM, bottom=(15, 9), top=(33, 17))


def batch(step: int, samples: int, replica: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Dense features, embeddings, labels."""
    generator = torch.Generator().manual_seed(100 * replica + step)
    dense = torch.randn(samples, DENSE, generator=generator)
    embeddings = torch.randn(samples, TABLES, DIM, generator=generator)
    return dense, embeddings, torch.randint(0, 2, (samples,), generator=generator).float()


def loss_of(logits_B: Tensor, labels_B: Tensor) -> Tensor:
    total = nn.functional.binary_cross_entropy_with_logits(logits_B, labels_B, reduction="sum")
    return total / 16


def optimizer_of(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adagrad([p for module in modules for p in module.parameters()], lr=0.05)


class Before(nn.Module):
    """Everything up to the first layer of the top MLP, and the split."""

    def __init__(self, model: DLRM, split: nn.Module) -> None:
        super().__init__()
        self.model, self.split = model, split
        model.logit = nn.Identity()
        model.top = model.top[:2].append(split)

    def forward(self, dense: Tensor, embeddings: Tensor) -> Tensor:
        part = self.model.dense_part(dense)
        vectors = torch.cat([part.unsqueeze(1), embeddings], dim=1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, self.model.pairs_P)
        return self.model.top(torch.cat([part, dots], dim=1))


class After(nn.Module):
    """The rest."""

    def __init__(self, model: DLRM, split: nn.Module) -> None:
        super().__init__()
        self.split, self.top, self.logit = split, model.top[2:], model.logit

    def forward(self) -> Tensor:
        return self.logit(self.top(self.split())).squeeze(1)


def train_in_one(form: str, ranks: int, threshold: Threshold | None) -> tuple[list[float], dict[str, Tensor]]:
    """Train in one process: the whole model if no threshold is given, or all ranks of a form."""
    model = make_model()
    if threshold is not None and form == "stages":
        model.top.insert(2, SplitLayer(threshold=threshold))
    elif threshold is not None:
        kind = {"ranks": ranks, "threshold": threshold}
        model.bottom = LocalDividedMlp(model.bottom, shared_input=True, name="bottom", **kind)
        model.top = LocalDividedMlp(model.top, name="top", **kind)
    optimizer = optimizer_of(model)
    losses = []
    for step, samples in enumerate(BATCHES):
        dense, embeddings, labels = batch(step, samples)
        loss = loss_of(model(dense, embeddings), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, dict(model.named_parameters())


def train_stages(rank: int, ranks: int, threshold: Threshold):
    """Rank 0 has the layers before the split, rank 1 those after it."""
    model, split = make_model(), Split(0, 1, threshold=threshold)
    stage = Before(model, split) if rank == 0 else After(model, split)
    optimizer = optimizer_of(stage)
    losses = []
    for step, samples in enumerate(BATCHES):
        dense, embeddings, labels = batch(step, samples)
        loss = stage(dense, embeddings).sum() if rank == 0 else loss_of(stage(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach() for p in stage.parameters()], split.ledger.summary()


def train_divided(rank: int, ranks: int, threshold: Threshold):
    """Every rank has some neurons of every layer; rank 0 has the interaction and the logit too."""
    model, several = make_model(), range(ranks)
    bottom = DividedMlp(model.bottom, several, shared_input=True, threshold=threshold, name="bottom")
    top = DividedMlp(model.top, several, threshold=threshold, name="top")
    model.bottom, model.top = bottom, top
    optimizer = optimizer_of(bottom, top, *([model.logit] if rank == 0 else []))
    losses = []
    for step, samples in enumerate(BATCHES):
        dense, embeddings, labels = batch(step, samples)
        home = rank == 0
        loss = loss_of(model(dense, embeddings), labels) if home else bottom(dense).sum() + top().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = {
        f"{name}.{k}.{kind}": getattr(layer, kind).detach()
        for name, mlp in (("bottom", bottom), ("top", top))
        for k, layer in enumerate(mlp.layers)
        for kind in ("weight", "bias")
    }
    return losses, weights


def train_replicas(rank: int, ranks: int, threshold: Threshold):
    """Two replicas of a model in two stages: ranks 0 -> 1 and 2 -> 3, each stage under DDP."""
    replica, stage_number = divmod(rank, 2)
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    model, split = make_model(), Split(2 * replica, 2 * replica + 1, threshold=threshold)
    stage = Before(model, split) if stage_number == 0 else After(model, split)
    wrapped = DistributedDataParallel(stage, process_group=groups[stage_number])
    optimizer = optimizer_of(wrapped)
    for step, samples in enumerate(BATCHES):
        dense, embeddings, labels = batch(step, samples, replica)
        loss = wrapped(dense, embeddings).sum() if stage_number == 0 else loss_of(wrapped(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [p.detach() for p in stage.parameters()]


def pass_once(rank: int, ranks: int, x: Tensor, gradient: Tensor, threshold: Threshold):
    """Return on rank 0 the gradient that came back, on rank 1 what arrived."""
    split = Split(0, 1, threshold=threshold)
    if rank == 0:
        x = x.clone().requires_grad_()
        anchor = split(x)
        anchor.sum().backward()
        return tuple(anchor.shape), x.grad, split.ledger.summary()
    arrived = split()
    arrived.backward(gradient)
    return arrived.detach(), arrived.requires_grad, split.ledger.summary()


def evaluate(rank: int, ranks: int, mode: str):
    """Forward passes without gradients, then one with: the ranks stay in step."""
    split = Split(0, 1, threshold=Threshold(0.5, method="topk", values=None))
    x = torch.arange(8.0).view(2, 4).requires_grad_()
    if mode == "frozen":
        arrived = split(x.detach()) if rank == 0 else split()
        return arrived.requires_grad, arrived.detach()
    split.eval()
    with torch.no_grad():
        first = split(x) if rank == 0 else split()
    sent = split.ledger.accounts["forward"].sent
    split.train()
    second = split(x) if rank == 0 else split()
    second.sum().backward()
    return first.requires_grad, first, sent, second.requires_grad, x.grad


def one_without_gradients(rank: int, ranks: int):
    split = Split(0, 1)
    if rank == 0:
        split(torch.ones(2, 4, requires_grad=True)).sum().backward()
    else:
        with torch.no_grad():
            split()


def differ(rank: int, ranks: int, what: str):
    keep = 0.5 if what == "threshold" and rank == 1 else 0.25
    split = Split(0, 1, threshold=Threshold(keep))
    if what == "turn" and rank == 1:
        split.turn = 3
    if rank == 0:
        split(torch.ones(2, 4, requires_grad=True)).sum().backward()
    else:
        split()


def different_batches(rank: int, ranks: int):
    Split([0, 1], [0, 1])(torch.ones(2 + rank, 4))


def vanish(rank: int, ranks: int, when: str):
    """Rank 1 ends before it has received, or before it has sent a gradient; or rank 0, before it has sent."""
    split = Split(0, 1, threshold=Threshold.exact())
    dist.barrier()  # both have joined
    if (when, rank) in (("source", 0), ("target", 1)):
        return
    if rank == 0:
        # more than a socket takes on its own
        split(torch.ones(2048, 512, requires_grad=True)).sum().backward()
        return
    arrived = split()
    if when != "backward":
        arrived.sum().backward()


def misuse(rank: int, ranks: int, what: str):
    if what == "outsider":
        Split(0, 1)
        return
    split = Split(0, 1)
    bad = {
        "float64": torch.ones(2, 4, dtype=torch.float64),
        "bfloat16": torch.ones(2, 4, dtype=torch.bfloat16),
        "one dimension": torch.ones(4),
        "three dimensions": torch.ones(4, 2, 2),
        "nothing": None,
    }
    if what == "target gives":
        if rank == 1:
            split(torch.ones(2, 4))
    elif rank == 0:
        split(bad[what])
