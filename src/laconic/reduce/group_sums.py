"""``laconic.all_reduce``: torch's call, by the way that takes least.

Every process group has one reducer, which opens its connections at the first sum. Sums of a group
run one after the other; those that nobody waits for run in a thread of the group. A reducer is
released when its group is destroyed and nobody holds it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, TimeoutError
from datetime import timedelta
from typing import Any, Literal, overload
from weakref import WeakKeyDictionary, finalize

import torch
import torch.distributed as dist
from torch import Tensor

from laconic.errors import CommError, LaconicError, PlanError
from laconic.exchange.ranks.worker import Worker
from laconic.exchange.ranks.world import GroupWorld, one_rank
from laconic.reduce.reducer import Method, Reducer, check_sum

__all__ = ["SumWork", "all_reduce"]


class SumWork:
    """A sum under way, with the words of ``torch.distributed.Work``.

    The tensor may not be used before the sum is done. What went wrong comes out of ``wait()`` and
    of the future.
    """

    def __init__(self, tensor: Tensor, done: Future[LaconicError | None]) -> None:
        self._tensor, self._done = tensor, done

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the tensor has the sum, then return True.

        ``CommError`` where a peer is lost, or where it takes longer than ``timeout``.
        """
        seconds = None if timeout is None else timeout.total_seconds()
        try:
            refused = self._done.result(seconds)
        except TimeoutError as error:
            raise CommError(
                f"all-reduce: expected the sum within {seconds:g} s, got none yet; wait longer, or see "
                "whether every rank of the group called it"
            ) from error
        if refused is not None:
            raise refused
        return True

    def is_completed(self) -> bool:
        """Whether the sum is done, or has failed."""
        return self._done.done()

    def get_future(self) -> torch.futures.Future[list[Tensor]]:
        """Return a future of a list of the tensor, as torch's own all-reduce does."""
        future: torch.futures.Future[list[Tensor]] = torch.futures.Future()

        def hand_over(done: Future[LaconicError | None]) -> None:
            failure: Any = done.exception() or done.result()
            if failure is None:
                future.set_result([self._tensor])
            else:
                future.set_exception(failure)

        self._done.add_done_callback(hand_over)
        return future

    def __repr__(self) -> str:
        state = "done" if self.is_completed() else "under way"
        return f"SumWork({tuple(self._tensor.shape)}, {self._tensor.dtype}, {state})"


class _Sums:
    """All sums of one process group: its reducer, and a thread once somebody does not wait."""

    def __init__(self, group: Any) -> None:
        alone = dist.get_world_size(group) == 1
        self._reducer = Reducer(one_rank() if alone else GroupWorld(group=group))
        self._worker: Worker | None = None

    def run(self, tensor: Tensor, method: Method, step: float | None) -> None:
        """Sum, after all that is under way."""
        if self._worker is None:
            self._reducer.sum(tensor, method, step=step)
        else:
            self.start(tensor, method, step).wait()

    def start(self, tensor: Tensor, method: Method, step: float | None) -> SumWork:
        """Sum in the group's thread, after all that is under way."""
        if self._worker is None:
            self._worker = Worker(
                "laconic-sums", "all-reduce: the process group was destroyed; make a new one"
            )
        return SumWork(tensor, self._worker.submit(_attempt, self._reducer.sum, tensor, method, step))

    def close(self) -> None:
        """End the thread without waiting for it, and leave the connections."""
        if self._worker is not None:
            self._worker.close(timeout_s=0)
        self._reducer.close()


def _attempt(
    sum_: Callable[..., Any], tensor: Tensor, method: Method, step: float | None
) -> LaconicError | None:
    """Sum; return what all ranks refuse alike. Only a lost peer makes the sums that follow fail."""
    try:
        sum_(tensor, method, step=step)
    except CommError:
        raise
    except LaconicError as error:
        return error
    return None


_sums: WeakKeyDictionary[Any, _Sums] = WeakKeyDictionary()


def _sums_of(group: Any) -> _Sums:
    """Find what sums for a group, or make it; all ranks of the group do so together."""
    if not dist.is_available() or not dist.is_initialized():
        raise PlanError(
            "all-reduce: torch.distributed has no process group; call torch.distributed.init_process_group first"
        )
    known = dist.distributed_c10d._world.pg_map
    if group is None:
        group = dist.distributed_c10d._get_default_group()
    elif group is dist.GroupMember.NON_GROUP_MEMBER:
        raise PlanError("all-reduce: this rank is not in the group; call it on the ranks of the group only")
    if group not in known:
        raise PlanError(
            f"all-reduce: expected a process group that exists, got {group!r}, which was destroyed"
        )
    if group not in _sums:
        _sums[group] = made = _Sums(group)
        finalize(group, made.close).atexit = False  # threads end by themselves there
    return _sums[group]


@overload
def all_reduce(
    tensor: Tensor,
    method: Method = ...,
    group: Any = ...,
    async_op: Literal[False] = ...,
    *,
    step: float | None = ...,
) -> Tensor: ...


@overload
def all_reduce(
    tensor: Tensor,
    method: Method = ...,
    group: Any = ...,
    *,
    async_op: Literal[True],
    step: float | None = ...,
) -> SumWork: ...


def all_reduce(
    tensor: Tensor,
    method: Method = "auto",
    group: Any = None,
    async_op: bool = False,
    *,
    step: float | None = None,
) -> Tensor | SumWork:
    """Sum a tensor over all ranks of a process group, in place, and return it.

    Integers come out as any all-reduce would make them. Floats are ``0 + x0 + x1 + ...`` in rank
    order: the same bits on every rank and by every method. All ranks of the group call it with
    tensors of the same size, in the same order. The first sum of a group opens its connections, so
    ranks that share several groups use them for the first time in the same order.

    ``method``: ``"dense"``; ``"gather"`` and ``"owners"`` for tensors that are mostly zero;
    ``"sketch"`` for sparse integers, or for floats rounded to multiples of ``step``. ``"auto"``
    looks how full the tensors are, knows how fast the link is, and takes what will be fastest.

    ``group``: a process group of torch; without one, the default group. ``async_op=True`` returns
    a handle with ``wait()``, ``is_completed()`` and ``get_future()``, like torch's.

    >>> gradient = torch.tensor([0.0, 0.0, 2.5])
    >>> laconic.all_reduce(gradient)  # a job of one rank: its own values
    tensor([0.0000, 0.0000, 2.5000])
    >>> work = laconic.all_reduce(gradient, async_op=True)
    >>> work.wait()
    True
    """
    sums = _sums_of(group)
    check_sum(tensor, method, step)
    if async_op:
        return sums.start(tensor, method, step)
    sums.run(tensor, method, step)
    return tensor
