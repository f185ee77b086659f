"""One rank's model, tables and optimizers, and what it does with a batch.

The loss is the mean over the *global* batch: every rank divides its sum by all samples, and
gradients are summed, so uneven and empty ranks weigh what they should.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from inspect import signature
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from laconic.cost.link import Link, ring_bytes
from laconic.data import Samples, Schema
from laconic.errors import ConfigError, LaconicError
from laconic.exchange import SGD, Ledger, RowOptimizer, RowwiseAdagrad, Table
from laconic.exchange.exchange_plan import Policy
from laconic.exchange.noise import RoundingCost
from laconic.exchange.pipeline import Purpose
from laconic.exchange.ranks.transport import is_lost_peer, lost_peer
from laconic.exchange.ranks.world import LocalWorld, World, one_rank
from laconic.exchange.sent_rows import Observer
from laconic.integrations.ddp import Compressor
from laconic.lookups import Lookups
from laconic.models import Model
from laconic.nn import ShardedEmbeddings
from laconic.train.dense import bucket_cap_mb, compress_gradients, make_model
from laconic.train.placement import Placement
from laconic.train.ranks import Ranks
from laconic.train.settings import EmbeddingSettings, RunSettings

__all__ = ["Snapshot", "Trainer"]

# Buffers are constants, so they need not be sent before every step. Older versions of torch call
# this otherwise.
_NEW_NAME = "forward_sync_buffers" in signature(DistributedDataParallel).parameters
_NO_BUFFERS: dict[str, Any] = {"forward_sync_buffers" if _NEW_NAME else "broadcast_buffers": False}


Replica = TypeVar("Replica", bound=nn.Module)


class _PendingRows(Protocol):
    """Embeddings that come later."""

    def wait(self) -> Tensor: ...


class Trainer:
    """All that a rank trains; an ``adapt.Subject``."""

    def __init__(
        self,
        settings: RunSettings,
        schema: Schema,
        ranks: Ranks,
        policy: Policy | None = None,
        *,
        world: World | None = None,
        placement: Placement | None = None,
    ) -> None:
        """``policy`` and ``placement`` replace those of the settings, ``world`` the process group.

        Without a ``policy`` the exchange is that of the settings at the start; nothing adapts it.
        """
        self.ranks, self._settings = ranks, settings
        placement = placement or Placement.from_settings(settings, schema)
        names = [table.name for table in placement.tables]
        cold = settings.embeddings.cold_folder or settings.train.out / "cold"
        local = None
        if ranks.rehearsed is not None:
            local = LocalWorld(ranks.rehearsed, patience_s=0, all_remote=ranks.all_remote)
        self.embeddings = ShardedEmbeddings(
            placement.tables,
            policy or settings.compression.effective().compression().policy(names),
            optimizer=_row_optimizer(settings.embeddings),
            seed=settings.train.seed,
            placement=placement.rows(cold),
            world=local or (one_rank() if ranks.count == 1 else world),
        )
        (self.rows,) = self.embeddings.engines
        """The exchange of the embeddings, which all have one dimension."""
        torch.manual_seed(settings.train.seed)
        self.model = make_model(settings.model, schema)
        self.optimizer = {
            "adagrad": torch.optim.Adagrad,
            "sgd": torch.optim.SGD,
            "adam": torch.optim.Adam,
        }[settings.dense.optimizer](self.model.parameters(), lr=settings.dense.lr, fused=True)
        self._whole = _Whole(self.model)
        self._replica: nn.Module = self._whole
        self.compressor: Compressor | None = None
        """Of dense gradients; None where they are exact."""
        if ranks.count > 1:
            cap = bucket_cap_mb(self.model, coded=settings.compression.effective().dense.method != "exact")
            self._replica = DistributedDataParallel(
                self._whole, bucket_cap_mb=cap, gradient_as_bucket_view=True, **_NO_BUFFERS
            )
            self.compressor = compress_gradients(self._replica, settings, self.optimizer)
        self._rate_share = 1.0
        if ranks.count > 1:
            self._settle_buckets(schema)

    @property
    def kind(self) -> dict[str, Any]:
        """What a checkpoint must agree in."""
        settings = self._settings
        return {
            **{f"model.{name}": value for name, value in settings.model.model_dump(mode="json").items()},
            "embeddings.optimizer": settings.embeddings.optimizer,
            "embeddings.pooling": settings.embeddings.pooling,
            "dense.optimizer": settings.dense.optimizer,
        }

    @property
    def dense_bytes(self) -> int:
        """Bytes of dense gradients that this rank sends per step."""
        before = self.dense_bytes_before
        if self.compressor is None or not self.compressor.bytes_dense:
            return before
        # its own count of steps goes on where a checkpoint ended, that of bytes does not
        steps = max(round(self.compressor.bytes_dense / before), 1)
        return self.compressor.bytes_sent // steps

    @property
    def dense_bytes_before(self) -> int:
        """Bytes that a ring all-reduce of the dense gradients sends per rank and step."""
        values = sum(parameter.numel() for parameter in self.model.parameters())
        return int(ring_bytes(4 * values, self.ranks.count))

    def step(self, samples: Samples, following: Lookups | None = None) -> tuple[Tensor, Tensor]:
        """Train on this rank's part of a batch; ids of the ``following`` one travel meanwhile.

        Returns the mean loss of this rank's samples, and their logits.
        """
        _check_labels(samples.label_B, self.rows.step + 1, self.ranks.rank)
        pending = self.embeddings.start(samples.lookups)
        step = pending.step + 1
        self._set_rates(step)
        looks_ahead = self.rows.pipeline.looks_ahead
        try:
            if following is not None and looks_ahead:  # rows travel while this step computes
                self.embeddings.prefetch(following)
            logits_B = self._replica(samples.dense_BF, pending)
            if following is not None and not looks_ahead:
                # ids alone, during backward: there is time while dense gradients travel
                self.embeddings.prefetch(following)
            total = nn.functional.binary_cross_entropy_with_logits(logits_B, samples.label_B, reduction="sum")
            loss = total / max(pending.global_samples, 1)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.embeddings.optimizer.step()
        except RuntimeError as error:
            if isinstance(error, LaconicError) or not is_lost_peer(error):
                raise
            raise lost_peer(f"dense gradients, step {step}", self.ranks.rank, error) from error
        if total.isnan():
            raise LaconicError(
                f"train: the loss of rank {self.ranks.rank} is NaN at step {step}; "
                "lower the learning rates, or look for NaN in the dense features"
            )
        return total.detach() / max(len(samples), 1), logits_B.detach()

    def _set_rates(self, step: int) -> None:
        """Give the optimizers their learning rates; they change only while these warm up."""
        share = min(step / self._settings.train.lr_warmup, 1.0) if self._settings.train.lr_warmup else 1.0
        if share != self._rate_share:
            self._rate_share = share
            rates = (
                (self.embeddings.optimizer, self._settings.embeddings.lr),
                (self.optimizer, self._settings.dense.lr),
            )
            for optimizer, rate in rates:
                for group in optimizer.param_groups:
                    group["lr"] = rate * share

    def replicate(self, wrap: Callable[[nn.Module], Replica]) -> Replica:
        """Train through what ``wrap`` makes of the model, as through DDP; return that."""
        replica = wrap(self._whole)
        self._replica = replica
        return replica

    def predict(self, samples: Samples) -> Tensor:
        """Logits of this rank's part of a batch; rows travel exactly."""
        self._whole.eval()
        self.embeddings.eval()
        try:
            return self.logits(samples)
        finally:
            self._whole.train()
            self.embeddings.train()

    def logits(self, samples: Samples) -> Tensor:
        """Logits, with rows as they travel in training; nothing is learnt."""
        with torch.no_grad():
            logits: Tensor = self._whole(samples.dense_BF, self.embeddings.start(samples.lookups))
        return logits

    def embed(self, samples: Samples) -> Tensor:
        """Pooled embeddings as they travel in training, B x T x D; nothing is learnt."""
        with torch.no_grad():
            return self.embeddings.start(samples.lookups).wait()

    def score(self, samples: Samples, rows_BTD: Tensor) -> Tensor:
        """Logits from given embeddings."""
        with torch.no_grad():
            logits: Tensor = self._whole(samples.dense_BF, _Here(rows_BTD))
        return logits

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables, in their order."""
        return self.rows.layout.tables

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tables."""
        return tuple(table.name for table in self.tables)

    @property
    def peers(self) -> int:
        """Number of other ranks."""
        return self.ranks.count - 1

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value; small ones only."""
        return self.ranks.gather(value, patient=False)

    def rounding_cost(self) -> RoundingCost:
        """Return what rounding cost a step's loss when all ranks last added it up."""
        return self.rows.rounding_cost()

    def new_ledger(self) -> Ledger:
        """Return an empty ledger of the tables."""
        return self.rows.ledger.like()

    def under(self, policy: Policy, ledger: Ledger) -> AbstractContextManager[None]:
        """Let rows and gradients travel as another policy says, counted in another ledger."""
        return self.rows.under(policy, ledger)

    def snapshot(self) -> Snapshot:
        """Remember the state where this is entered."""
        return Snapshot(self)

    @contextmanager
    def observe(self, observer: Observer) -> Iterator[None]:
        """Let something see what rows and gradients become on their way."""
        self.rows.observe(observer)
        try:
            yield
        finally:
            self.rows.observe(None)

    def probe_link(self) -> Link:
        """Measure the link to the other ranks."""
        return self.rows.probe_link()

    def rows_from_a_peer(self, lookups: Lookups) -> list[NDArray[np.float32]]:
        """Return rows of every table that one other rank answers: a sample of what travels."""
        fetched = self.rows.pipeline.start(lookups, lookups, Purpose.SCORE)
        rows_RD = fetched.received.result().numpy()
        answers_NT = fetched.routed.result().ranks[0].request.answers_NT
        layout = self.rows.layout
        others = [rank for rank in range(layout.ranks) if rank != layout.rank]
        tables = len(layout.tables)  # of copies nobody answers any
        counts_T = answers_NT[others[0], :tables] if others else np.zeros(tables, np.int64)
        return np.split(rows_RD[: int(counts_T.sum())], np.cumsum(counts_T)[:-1])

    def link_changed(self) -> None:
        """Let dense gradients travel as the link that is measured next asks for."""
        if self.compressor is not None:
            self.compressor.look_again()

    def _settle_buckets(self, schema: Schema) -> None:
        """Let DDP rebuild its buckets on a batch of no samples.

        It does so once, after the first backward pass. The order of a sum of three or more ranks
        depends on a value's place in its bucket, so a resumed run would otherwise differ in the
        last bit of its first step.
        """
        nothing = _Here(torch.zeros(0, schema.tables, self.rows.dim))
        for _ in range(2):
            self._replica(torch.zeros(0, len(schema.dense)), nothing).sum().backward()
        self.optimizer.zero_grad()
        if self.compressor is not None:
            self.compressor.begin()


class Snapshot:
    """The state when it is entered; ``go_back`` returns to it, any number of times.

    Leaving it keeps the state of that moment.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def __enter__(self) -> Self:
        trainer = self._trainer
        trainer.rows.begin_journal()
        self._model = deepcopy(trainer.model.state_dict())
        self._optimizer = deepcopy(trainer.optimizer.state_dict())
        self._rate_share = trainer._rate_share
        self._held_back = None if trainer.compressor is None else trainer.compressor.state_dict()
        return self

    def go_back(self) -> None:
        """Make the trainer what it was; every rank alike."""
        trainer = self._trainer
        trainer.rows.undo()
        trainer.model.load_state_dict(self._model)
        trainer.optimizer.load_state_dict(deepcopy(self._optimizer))
        # the optimizer's state has learning rates: the trainer must know which it set
        trainer._rate_share = self._rate_share
        if trainer.compressor is not None and self._held_back is not None:
            trainer.compressor.load_state_dict(self._held_back)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._trainer.rows.end_journal()


class _Here:
    """Rows that need not be waited for."""

    def __init__(self, rows_BTD: Tensor) -> None:
        self._rows_BTD = rows_BTD

    def wait(self) -> Tensor:
        return self._rows_BTD


class _Whole(nn.Module):
    """The model over rows that are still on their way; what needs no rows runs first."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, dense_BF: Tensor, rows: _PendingRows) -> Tensor:
        part = self.model.dense_part(dense_BF)
        return self.model.head(part, rows.wait())


def _check_labels(label_B: Tensor, step: int, rank: int) -> None:
    """Refuse what the loss would take for a probability, or make NaN of."""
    wrong = (label_B != 0) & (label_B != 1)
    if wrong.any():
        raise ConfigError(
            f"train: expected labels 0 and 1, got {label_B[wrong][0].item()} at step {step} on rank {rank}; "
            "look at the label column of the data"
        )


def _row_optimizer(settings: EmbeddingSettings) -> RowOptimizer:
    return SGD(settings.lr) if settings.optimizer == "sgd" else RowwiseAdagrad(settings.lr)
