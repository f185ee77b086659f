"""One rank's part of a DLRM that is divided over two ranks and replicated, and its step.

::

    replica   home: half the neurons of both MLPs, embeddings, interaction, logit   the other half
    0         rank 0                                                                rank 1
    1         rank 3                                                                rank 2

Homes have more to do, and hosts take cores in turn: so two of them do not meet on one of two cores.
Equal parts of all replicas are one ``DistributedDataParallel``; embedding tables are sharded by rows among the homes.
Dense features are known to both ranks of a replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.thresholding.hybrid.jobs import PARTS, Steps
from benchmarks.thresholding.hybrid.methods import Method
from benchmarks.thresholding.hybrid.muted import mute
from benchmarks.worker import fingerprint
from laconic.data import Samples, Schema
from laconic.exchange import Sgd, Table
from laconic.exchange.world import Alone, Joined, World
from laconic.integrations.ddp import Compressor, register_ddp
from laconic.models import DLRM
from laconic.nn import DividedMlp, ShardedEmbeddings, Split
from laconic.nn.pending import Pending
from laconic.train.ranks import Ranks

__all__ = ["Groups", "Part"]

_RATE = 0.01


class Groups:
    """Who has what: replicas are neighbors by rank, and where a replica's home is changes from one to the next."""

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


class Part:
    """What one rank trains by one method."""

    def __init__(
        self, job: Steps, method: Method, schema: Schema, batches: Sequence[Samples], groups: Groups
    ) -> None:
        self._batches, self._numbers, self._groups = batches, count(), groups
        self.loss = 0.0
        """Of the last step, at home."""
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
        world: World = Alone() if method.threshold is None else Joined(group=groups.equal)
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
                self.compressor = register_ddp(self._replica, large=method.large, bypass=False)
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
            self._embeddings.finish()
            self.loss = float(loss.detach())

    def weights(self) -> int:
        """Return a number that differs where weights do."""
        return fingerprint(torch.cat([p.detach().reshape(-1) for p in self._module.parameters()]))

    def bytes_sent(self) -> tuple[int, int]:
        """Bytes that this rank has sent so far: at splits, and of gradients, where DDP itself sends none of them."""
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

    def __init__(self, whole: DLRM, method: Method, samples: int, groups: Groups) -> None:
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
                mute(divided, mlp, samples)
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
    tables = [Table(name=f.name, rows=f.rows, sharding="row") for f in schema.categorical]
    return ShardedEmbeddings(tables, dim, optimizer=Sgd(rate=_RATE), world=world)
