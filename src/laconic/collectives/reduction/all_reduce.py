"""``all_reduce``: one function, over the default process group."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor

from laconic.collectives.reduction.reducer import Method, Reducer
from laconic.collectives.world import Alone
from laconic.errors import PlanError

__all__ = ["all_reduce"]

_reducers: list[tuple[Any, Reducer]] = []  # of the default group, at most one


def all_reduce(tensor: Tensor, method: Method = "auto", *, step: float | None = None) -> Tensor:
    """Sum a tensor over all ranks of the default process group, in place, and return it.

    Integers come out as any all-reduce would make them; floats as ``0 + x0 + x1 + ...`` in rank order, bit for
    bit the same on every rank and by every method. All ranks call it with tensors of the same size, one after the
    other in the same order.

    ``method``: ``"dense"``; ``"gather"`` and ``"owners"`` for tensors that are mostly zero; ``"sketch"``
    for sparse integers, or floats rounded to multiples of ``step``; ``"auto"`` looks how full they are, knows how fast
    the link is, and takes what will be fastest.
    """
    _reducer().sum(tensor, method, step=step)
    return tensor


def _reducer() -> Reducer:
    if not dist.is_available() or not dist.is_initialized():
        raise PlanError(
            "all-reduce: torch.distributed has no process group; call torch.distributed.init_process_group first"
        )
    group = dist.distributed_c10d._get_default_group()
    if not _reducers or _reducers[-1][0] is not group:
        _reducers[:] = [(group, Reducer(Alone() if dist.get_world_size() == 1 else None))]
    return _reducers[-1][1]
