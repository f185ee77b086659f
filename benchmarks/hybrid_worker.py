"""One rank of the hybrid benchmark: its part of a divided and replicated DLRM, and its step.

``WorkerPool`` starts it as ``python -m benchmarks.hybrid_worker JOBS ANSWERS``.

::

    replica   home: half the neurons of both MLPs, embeddings, interaction, logit   the other half
    0         rank 0                                                                rank 1
    1         rank 3                                                                rank 2

Homes have more to do, and hosts take cores in turn, so that two homes do not share one of two
cores. Equal parts of all replicas are one ``DistributedDataParallel``. Embedding tables are sharded
row-wise among the homes. Both ranks of a replica have the dense features.

Methods differ only in what they send:

======= ======================================== ==============================================
method  activations and their gradients          gradients of parameters
======= ======================================== ==============================================
alone   nothing is sent: others' are constants   each rank's own
plain   float32, all of them                     ``DistributedDataParallel`` as it is, on gloo
hybrid  the largest tenth of a row (DCT-MP)      the largest hundredth of a layer (DCT-DP)
rounded the same, within 0.1 and 0.5 of RMS      the same
======= ======================================== ==============================================

Masks are bits, because a step waits for cores here. All methods send embedding rows exactly,
because the paper's levels are those of MLPs. Shape legend: ``B`` samples, ``D`` columns.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

import torch
import torch.distributed as dist
from pydantic import Field
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.workers import MeasuredCalls, MethodFigures, fingerprint, measure, serve
from laconic.adapt.compression import Compression
from laconic.codecs.threshold import Threshold
from laconic.config import Settings
from laconic.data import DataSettings, Samples, Schema, SyntheticSettings, open_source
from laconic.demo.measure import rotated
from laconic.exchange import SGD, Table
from laconic.exchange.ranks.world import GroupWorld, World, one_rank
from laconic.integrations.ddp import Compressor, register_ddp
from laconic.models import DLRM
from laconic.nn import DividedMlp, ShardedEmbeddings, Split
from laconic.nn.pending import Pending
from laconic.reduce import LargeFirst
from laconic.train.ranks import Ranks, process_group
from laconic.train.settings import ModelSettings

PARTS = 2
"""Ranks that a replica is divided over; neighbors by number."""
_RATE = 0.01
_BATCHES = 8  # made before the clock starts, used in turn
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # of mallopt


@dataclass(frozen=True, slots=True)
class HybridMethod:
    """One method: what splits and gradients send."""

    name: str
    threshold: Threshold | None
    """Threshold at splits; None: nothing is sent at all."""
    large: LargeFirst | None
    """Entries of gradients that are sent; None: all of them."""


_LARGE = LargeFirst(0.01)
METHODS = {
    method.name: method
    for method in (
        HybridMethod("alone", None, None),
        HybridMethod("plain", Threshold.exact(), None),
        HybridMethod("hybrid", Threshold(0.1, mask="bits", values=None, gradients=None), _LARGE),
        HybridMethod("rounded", Threshold(0.1, mask="bits"), _LARGE),
    )
}


class HybridSteps(Settings):
    """Time some steps of every method, in turns."""

    methods: tuple[str, ...]
    data: DataSettings = SyntheticSettings(kind="synthetic", cap=100_000)
    model: ModelSettings
    batch: int = Field(ge=1)
    """Samples of a replica."""
    rounds: int = Field(ge=1)
    steps: int = Field(ge=1)
    """Steps of each method in each round; one more before them is not timed."""


class HybridAnswer(MethodFigures):
    """Figures of one method."""

    bytes_split: float
    """Bytes that one host sends in a step at splits, as the method counts them."""
    bytes_dense: float
    """Bytes of gradients of parameters that one host sends in a step, as the method counts them."""
    equal: bool
    """Whether all replicas have the same weights after the last step, bit for bit."""
    loss: float
    """Loss of the last step, the mean of all replicas."""


class Groups:
    """The ranks of this replica, and the ranks with equal parts; homes change their place."""

    def __init__(self, ranks: Ranks) -> None:
        self.replica, place = divmod(ranks.rank, PARTS)
        self.replicas = ranks.count // PARTS
        self.part = (place - self.replica) % PARTS
        """0: at home, with the embeddings and the loss."""
        self.mine = [PARTS * self.replica + (part + self.replica) % PARTS for part in range(PARTS)]
        """Ranks of this replica, in the order of parts."""
        equal = [
            [PARTS * replica + (part + replica) % PARTS for replica in range(self.replicas)]
            for part in range(PARTS)
        ]
        self.equal: Any = [dist.new_group(sorted(several)) for several in equal][self.part]
        """Ranks that have the same part."""


class ModelShard:
    """The part of the model that one rank trains by one method."""

    def __init__(
        self,
        job: HybridSteps,
        method: HybridMethod,
        schema: Schema,
        batches: Sequence[Samples],
        groups: Groups,
    ) -> None:
        self._batches, self._numbers, self._groups = batches, count(), groups
        self.loss = 0.0
        """Loss of the last step, at home."""
        torch.manual_seed(0)
        settings = job.model
        whole = DLRM(
            dense=len(schema.dense),
            tables=schema.tables,
            dim=settings.dim,
            bottom=settings.bottom,
            top=settings.top,
        )
        self._module = _Divided(whole, method, job.batch, groups)
        self.splits = [module for module in self._module.modules() if isinstance(module, Split)]
        world: World = one_rank() if method.threshold is None else GroupWorld(group=groups.equal)
        self._embeddings = _embeddings(schema, settings.dim, world) if groups.part == 0 else None
        self._replica: nn.Module = self._module
        self.compressor: Compressor | None = None
        if method.threshold is not None:
            self._replica = DistributedDataParallel(
                self._module,
                process_group=groups.equal,
                gradient_as_bucket_view=True,
            )
            if method.large is not None:
                self.compressor = register_ddp(self._replica, method.large, bypass=False)
        self._optimizer = torch.optim.SGD(self._module.parameters(), lr=_RATE, fused=True)

    def step(self) -> None:
        """Train on the next batch."""
        number = next(self._numbers)
        samples, following = (self._batches[n % len(self._batches)] for n in (number, number + 1))
        if self._embeddings is not None:
            logits_B = self._replica(samples.dense_BF, self._embeddings.start(samples.lookups))
            self._embeddings.prefetch(following.lookups)  # as ``laconic train`` does
            loss = nn.functional.binary_cross_entropy_with_logits(logits_B, samples.label_B)
        else:
            loss = self._replica(samples.dense_BF)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._optimizer.zero_grad()
        if self._embeddings is not None:
            self._embeddings.optimizer.step()
            self.loss = float(loss.detach())

    def weights(self) -> int:
        """Return a number that differs where weights do."""
        return fingerprint(torch.cat([p.detach().reshape(-1) for p in self._module.parameters()]))

    def bytes_sent(self) -> tuple[int, int]:
        """Return bytes that this rank has sent so far at splits, and of gradients if not by DDP."""
        splits = sum(a.sent for split in self.splits for a in split.ledger.accounts.values())
        return splits, 0 if self.compressor is None else self.compressor.bytes_sent

    def close(self) -> None:
        """Leave the wires."""
        if self._embeddings is not None:
            self._embeddings.close()
        if self.compressor is not None:
            self.compressor.close()


class _Divided(nn.Module):
    """The module that a rank has of the whole."""

    def __init__(self, whole: DLRM, method: HybridMethod, samples: int, groups: Groups) -> None:
        super().__init__()
        for name in ("bottom", "top"):
            mlp = getattr(whole, name)
            divided = DividedMlp(
                mlp,
                groups.mine,
                shared_input=name == "bottom",
                threshold=method.threshold,
                name=f"{method.name}.{name}",
            )
            if method.threshold is None:
                _without_communication(divided, mlp, samples)
            setattr(whole, name, divided)
        self._home = groups.part == 0
        if self._home:
            self.model = whole
        else:
            self.bottom, self.top = whole.bottom, whole.top

    def forward(self, dense_BF: Tensor, rows: Pending | None = None) -> Tensor:
        """Return logits at home, and elsewhere a sum that backward can begin at."""
        if rows is None:
            return self.bottom(dense_BF).sum() + self.top().sum()  # type: ignore[no-any-return]
        part_BD = self.model.dense_part(dense_BF)
        return self.model.head(part_BD, rows.wait())


def _embeddings(schema: Schema, dim: int, world: World) -> ShardedEmbeddings:
    tables = [Table(f.name, f.rows, dim, sharding="row") for f in schema.categorical]
    exact = Compression(rows=None, gradients=None)
    return ShardedEmbeddings(tables, exact, optimizer=SGD(_RATE), world=world)


def _without_communication(mlp: DividedMlp, whole: nn.Sequential, samples: int) -> None:
    """Let the splits of one of two parts send nothing; ``whole`` is what it is a part of.

    Every layer has its width and is computed forward and back; the activations of the other rank
    are zeros.
    """
    layers = [layer for layer in whole if isinstance(layer, nn.Linear)]
    home = mlp.splits[0].rank == mlp.ranks[0]
    if mlp.enter is not None:
        mlp.enter = _ZerosBeside(0 if home else layers[0].in_features, samples)  # type: ignore[assignment]
    for k, (layer, own) in enumerate(zip(layers, mlp.layers, strict=True)):
        gets = home or k + 1 < len(layers)
        assert isinstance(own.bias, Tensor), "neurons have biases"
        mlp.splits[k] = _ZerosBeside(layer.out_features - len(own.bias) if gets else 0, samples)


class _ZerosBeside(nn.Module):
    """Zeros beside a rank's own activations."""

    def __init__(self, columns: int, samples: int) -> None:
        super().__init__()
        self._zeros_BD = torch.zeros(samples, columns)

    def cross(self, parts: Sequence[Tensor | None]) -> list[Tensor]:
        """Do what a split does for the one rank of this process, but for sending anything."""
        (x_BD,) = parts
        others_BD = self._zeros_BD.detach().requires_grad_()  # a rank computes gradients of what it gets
        return [others_BD if x_BD is None else torch.cat([x_BD, others_BD], dim=1)]


@dataclass(slots=True)
class _Figures:
    part: ModelShard
    measured: list[MeasuredCalls] = field(default_factory=list)
    bytes_split: float = 0.0
    bytes_dense: float = 0.0


class _Worker:
    """Keeps models for jobs that differ only in repeats: making them takes longer than a step."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks, self._groups = ranks, Groups(ranks)
        self._key, self._parts = "", dict[str, ModelShard]()

    def do(self, job: HybridSteps) -> list[HybridAnswer]:
        """Time steps, in turns."""
        self._prepare(job)
        all_figures = [_Figures(self._parts[name]) for name in job.methods]
        for figures in rotated(all_figures, job.rounds):
            self._time(figures, job.steps)
        return [self._answer(figures, name) for name, figures in zip(job.methods, all_figures, strict=True)]

    def close(self) -> None:
        for part in self._parts.values():
            part.close()

    def _prepare(self, job: HybridSteps) -> None:
        key = job.model_copy(update={"methods": (), "rounds": 1, "steps": 1}).model_dump_json()
        if key != self._key:
            self.close()
            self._key, self._parts = key, {}
        missing = [name for name in job.methods if name not in self._parts]
        if not missing:
            return
        source, groups = open_source(job.data), self._groups
        batches = source.batches(
            "train", global_batch=job.batch * groups.replicas, rank=groups.replica, ranks=groups.replicas
        )
        few = list(islice(batches, _BATCHES))
        for name in missing:
            self._parts[name] = ModelShard(job, METHODS[name], source.schema, few, groups)

    def _time(self, figures: _Figures, steps: int) -> None:
        part, calls = figures.part, steps + 1
        before = part.bytes_sent()
        figures.measured.append(measure(self._ranks, part.step, steps, skip=1))
        figures.bytes_split, figures.bytes_dense = (
            (now - then) / calls for now, then in zip(part.bytes_sent(), before, strict=True)
        )

    def _answer(self, figures: _Figures, name: str) -> HybridAnswer:
        part = figures.part
        place = self._groups.part
        own = (place, part.weights(), part.loss, figures.bytes_split, figures.bytes_dense)
        seen = self._ranks.gather(own)
        equal = len({(place, weights) for place, weights, *_ in seen}) == PARTS
        return HybridAnswer.of(
            name,
            figures.measured,
            bytes_split=statistics.fmean(split for *_, split, _ in seen),
            bytes_dense=statistics.fmean(dense for *_, dense in seen),
            equal=equal,
            loss=statistics.fmean(loss for place, _, loss, *_ in seen if place == 0),
        )


def _keep_memory() -> None:
    """Keep freed memory: glibc may or may not return it, and faults on new pages cost a lot."""
    libc = ctypes.CDLL(None)
    for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
        libc.mallopt(option, 1 << 30)


if __name__ == "__main__":
    _keep_memory()
    with process_group(timeout_s=600) as ranks, closing(_Worker(ranks)) as worker:
        serve(ranks, {HybridSteps: worker.do})
