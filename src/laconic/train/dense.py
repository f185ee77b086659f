"""The dense part of a run: its model, the size of gradient buckets, and what gradients travel as.

DDP fills a bucket in the order in which gradients come, and sends it once it holds at least so many
bytes. Layers of the head come first; those of the bottom MLP after the rows' gradients, at the very
end of the backward pass. What shares a bucket with them waits for them, so a bucket should end
where the head does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch.nn.parallel import DistributedDataParallel

from laconic.data import Schema
from laconic.integrations.ddp import Compressor, register_ddp
from laconic.models import DLRM, DCNv2, Model
from laconic.nn import sum_gradients
from laconic.reduce import Exact, LargeFirst
from laconic.reduce.network import InNetwork
from laconic.train.settings import ModelSettings, RunSettings

__all__ = ["bucket_cap_mb", "compress_gradients", "make_model"]

_EXACT_MB = 0.5
"""Small: the last layers' gradients travel while the rest is computed."""
_CODED_MB = 1.0
"""Where they are compressed, a round of messages takes longer than the bytes of a small bucket."""

_BOTTOM = "bottom."  # of models that have one


def make_model(settings: ModelSettings, schema: Schema) -> Model:
    """Make the dense part of a run's model."""
    dense, tables, dim = len(schema.dense), schema.tables, settings.dim
    if settings.kind == "dlrm":
        return DLRM(dense=dense, tables=tables, dim=dim, bottom=settings.bottom, top=settings.top)
    return DCNv2(
        dense=dense, tables=tables, dim=dim, bottom=settings.bottom, cross=settings.cross, deep=settings.top
    )


def bucket_cap_mb(model: Model, *, coded: bool) -> float:
    """Return the capacity with which a bucket ends where the head's gradients do, if it can."""
    if not coded:
        return _EXACT_MB
    sizes: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        if not name.startswith(_BOTTOM):
            sizes[name.rpartition(".")[0]] += parameter.numel() * parameter.element_size()
    arriving = [*sizes.values()][::-1]
    for first in range(len(arriving)):
        cap = sum(arriving[first:])
        if _EXACT_MB * 2**20 <= cap <= _CODED_MB * 2**20 and _left_over(arriving[:first], cap) == 0:
            return cap / 2**20
    return _CODED_MB


def _left_over(sizes: Sequence[int], cap: int) -> int:
    """Bytes that wait for more to come after layers of these sizes."""
    waiting = 0
    for size in sizes:
        waiting = 0 if waiting + size >= cap else waiting + size
    return waiting


def compress_gradients(
    replica: DistributedDataParallel, settings: RunSettings, optimizer: torch.optim.Optimizer
) -> Compressor | None:
    """Let dense gradients travel as the settings say; None where they travel as they are."""
    effective, network = settings.compression.effective(), None
    if effective.dense.method == "network":
        network = InNetwork.from_environment(timeout_s=settings.train.timeout_s)
    compression = effective.compression(seed=settings.train.seed, network=network)
    if isinstance(compression.dense, Exact):
        replica.register_comm_hook(None, sum_gradients)
        return None
    if isinstance(compression.dense, LargeFirst) and settings.dense.optimizer != "sgd":
        compression = replace(compression, dense=replace(compression.dense, optimizer=optimizer))
    return register_ddp(replica, compression, reduction="sum", bypass=effective.economy)
