"""``DistributedDataParallel``: gradients that travel as little as they can, for one line in a script.

::

    model = DistributedDataParallel(model)
    compressor = laconic.register_ddp(model)                                # lossless
    compressor = laconic.register_ddp(model, laconic.Levels())              # within a ninth of each entry
    compressor = laconic.register_ddp(model, laconic.LargeFirst(0.01)) # large entries first (DCT)

Gradient accumulation, ``no_sync`` and buckets that DDP rebuilds work as without. Where compression does not pay, a
bucket travels as DDP would send it, and is counted as bypassed; ``compressor.summary()`` says why. What thresholding holds
back is in ``compressor.state_dict()``: each rank saves and loads its own.
"""

# DDP reads the hook's annotations, so they must not become strings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from threading import Lock
from time import thread_time
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from laconic.codecs import Lossless
from laconic.cost.link import DENSE_SHARE, ring_bytes
from laconic.errors import ConfigError
from laconic.exchange.worker import Worker
from laconic.exchange.world import GroupWorld, World, one_rank
from laconic.integrations.ddp_settings import (
    HookSettings,
    Method,
    check_arguments,
    check_lossy_parameters,
    names_of_others,
    warn_of_foreign_parameters,
)
from laconic.integrations.held_back import HeldBack
from laconic.reduce import Choice, Exact, LayerMemory, Reducer

__all__ = ["Compressor", "Method", "register_ddp"]

_LANES = 2  # buckets under way at a time: one is encoded while another travels
_LOOK_EVERY = 256  # steps between two looks at how full a bucket is
_NO_GAIN = "no faster than DDP"  # the link is fast, or little is zero


def register_ddp(
    model: DistributedDataParallel,
    method: Method | None = None,
    *,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    warmup: int = 0,
    reduction: Literal["mean", "sum"] = "mean",
    bypass: bool = True,
    world: World | None = None,
) -> "Compressor":
    """Let a model's gradients travel compressed; every rank calls it, after wrapping the model.

    Without a ``method`` nothing is lost: zeros are left out, or bytes coded losslessly, whichever is faster. ``Exact()``
    leaves out zeros only. A codec makes every parameter a block of it: ``Lossless()`` changes no bit, ``Levels()`` suits
    any optimizer, bounded ones should round without bias (``rounding="unbiased"``). ``LargeFirst()``: large entries are
    sent, the rest waits in memory. ``Rounded()``: gradients are summed as int32 multiples of a shared step, by the ranks, or by
    a network that adds (``InNetwork``); the result is the same bits.

    Parameters whose names do not match ``include``, or match ``exclude``, stay exact, and so do all in the first
    ``warmup`` steps. ``reduction="sum"``: for a loss that is already divided by the global batch.
    ``bypass=False``: compress even where the link is so fast that it does not pay.

    Parameters that a method compresses need dense float32 gradients on the CPU; others that were not excluded are a
    ``ConfigError``. Without a method they travel as DDP sends them, and a warning says so.
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile was given
    if not isinstance(model, DistributedDataParallel):
        raise ConfigError(
            f"register_ddp: expected a DistributedDataParallel model, got {type(model).__name__}; wrap it first"
        )
    check_arguments(method=method, include=include, exclude=exclude, warmup=warmup, reduction=reduction)
    names = {id(parameter): name for name, parameter in model.module.named_parameters()}
    chosen = {name for name in names.values() if _matches(name, include) and not _matches(name, exclude)}
    if method is not None and not isinstance(method, Exact) and not chosen:
        raise ConfigError(
            f"register_ddp: include={list(include)!r} and exclude={list(exclude)!r} leave no parameter of "
            f"{', '.join(sorted(names.values())[:5])}, ..."
        )
    if method is None or isinstance(method, Exact):
        warn_of_foreign_parameters(model.module)
        chosen -= names_of_others(model.module)
    else:
        check_lossy_parameters(model.module, frozenset(chosen), type(method).__name__)
    settings = HookSettings(method, frozenset(chosen), warmup, reduction == "mean", bypass)
    compressor = Compressor(settings, names, model.process_group, world)
    model.register_comm_hook(compressor, _hook)
    return compressor


def _hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    return state.reduce(bucket)  # type: ignore[no-any-return]


@dataclass(slots=True)
class _Bucket:
    """What is known of the parameters that DDP sends together."""

    chosen: list[bool]
    layers: Any
    """Where its chosen parameters begin, side by side, and end."""
    memory: LayerMemory
    choice: Choice | None = None
    looked: int = 0
    """Step of the last look."""


@dataclass(frozen=True, slots=True)
class _Lane:
    """A wire, and the thread that uses it."""

    reducer: Reducer
    worker: Worker


class Compressor:
    """State of the hook: memory of what was not sent, and a count of what was."""

    def __init__(
        self, settings: HookSettings, names: dict[int, str], group: Any, world: World | None
    ) -> None:
        self._settings, self._names, self._group = settings, names, group
        self._ranks = dist.get_world_size(group)
        world = one_rank() if self._ranks == 1 else world or GroupWorld(group=group)
        lanes = 1 if settings.network is not None else _LANES  # a network sums one thing at a time
        self._lanes = [
            _Lane(Reducer(world, f"all-reduce {k}"), Worker(f"laconic-ddp-{k}")) for k in range(lanes)
        ]
        self._measured: Future[tuple[Any, Any]] | None = None
        self._counting = Lock()
        self._buckets: dict[tuple[int, ...], _Bucket] = {}
        # by bucket: its values, and the step until which DDP's way is best; the same on every rank, as choices must be
        self._dense: dict[int, tuple[int, int]] = {}
        self._sum = dist.AllreduceOptions()
        self._held_back = HeldBack(dist.get_rank(group), self._ranks)
        self.step = 0
        """Backward passes that were synchronized."""
        self.bytes_sent = 0
        """By this rank, what DDP itself sends for a bypassed bucket included."""
        self.bytes_dense = 0
        """What a ring all-reduce of everything would have sent."""
        self.work_s = 0.0
        """Time that this rank computed for buckets that were not bypassed: codecs and sums."""
        self.bypassed = 0
        """Buckets that traveled as DDP would send them."""
        self._reasons: Counter[str] = Counter()
        self._failure: BaseException | None = None
        self.buckets = 0

    def __repr__(self) -> str:
        method = self._settings.method or "lossless"
        return f"Compressor({method!s}, {len(self._settings.chosen)} parameters, {self._ranks} ranks, step {self.step})"

    def reduce(self, bucket: Any) -> Any:
        """Sum one bucket over all ranks; what DDP calls."""
        buffer, index, step = bucket.buffer(), bucket.index(), self.step
        ring = _plain_bytes(buffer, self._ranks)
        self.bytes_dense += ring
        self.buckets += 1
        self.step += bool(bucket.is_last())
        # what is not worth compressing is not worth a second thought either
        values, until = self._dense.get(index, (0, 0))
        reason: str | None = _NO_GAIN
        if step >= until or buffer.numel() != values:
            state = self._state_of(bucket)
            reason = self._why_plain(state, buffer, step)
            if reason is not None and state.choice is not None:
                self._dense[index] = (buffer.numel(), state.looked + _LOOK_EVERY)
        if reason is not None:
            self.bypassed += 1
            self._reasons[reason] += 1
            self._count(ring)
            return self._plain(buffer)
        future: Any = torch.futures.Future()
        if self._measured is None and not self._settings.rounded:  # before anything else travels
            self._measured = self._lanes[0].worker.submit(self._lanes[0].reducer.measure)
        lane = self._lanes[index % len(self._lanes)]  # one bucket after the other, the same on every rank
        work = lane.worker.submit(self._work, lane.reducer, state, bucket.gradients(), buffer, step)
        work.add_done_callback(partial(self._hand_over, future, buffer))
        _at_the_end_of_backward(
            partial(_at_the_end_of_backward, self._raise_failure)
        )  # after what DDP does there
        return future

    def begin(self) -> None:
        """Forget what was counted so far, warm-up included."""
        self.step = self.bytes_sent = self.bytes_dense = self.bypassed = self.buckets = 0
        self.work_s = 0.0
        self._reasons.clear()
        self._dense.clear()
        for bucket in self._buckets.values():
            bucket.choice = None

    def look_again(self) -> None:
        """Measure the link anew before the next step, and choose by that; every rank alike, while nothing is on its way."""
        self._measured = None
        self._dense.clear()
        for lane in self._lanes:
            lane.reducer.forget()
        for bucket in self._buckets.values():
            bucket.choice = None

    def state_dict(self) -> dict[str, Any]:
        """Return what this rank holds back; every rank has its own."""
        return {"step": self.step, **self._held_back.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken, on the same rank of as many."""
        missing = {"step", "memory", "thresholds"} - state.keys()
        if missing:
            raise ConfigError(
                f"register_ddp: expected what compressor.state_dict() returned, got {sorted(state)} without "
                f"{', '.join(sorted(missing))}"
            )
        self._held_back.load_state_dict(state, self._names.values())
        self.step = int(state["step"])
        self._buckets.clear()
        self._dense.clear()

    def summary(self) -> dict[str, Any]:
        """Return what traveled so far."""
        return {
            "steps": self.step,
            "bytes_dense": self.bytes_dense,
            "bytes_sent": self.bytes_sent,
            "ratio": self.bytes_dense / self.bytes_sent if self.bytes_sent else 1.0,
            "buckets": self.buckets,
            "bypassed": self.bypassed,
            "bypassed_because": dict(self._reasons),
        }

    def close(self) -> None:
        """Finish what was asked, and leave the wire."""
        for lane in self._lanes:
            lane.worker.close()
            lane.reducer.close()

    def _why_plain(self, state: _Bucket, buffer: Tensor, step: int) -> str | None:
        """Why a bucket travels as DDP would send it; None: it does not."""
        if buffer.is_sparse:
            return "sparse gradients"
        if not self._lanes[0].reducer.accepts(buffer):
            return f"gradients of {buffer.dtype} on {buffer.device}"
        if step < self._settings.warmup:
            return "warm-up"
        if not self._settings.bypass or state.choice is None or step - state.looked >= _LOOK_EVERY:
            return None
        return _NO_GAIN if state.choice.method == "dense" else None

    def _plain(self, buffer: Tensor) -> Any:
        """Send as DDP does: scaled before, while the buffer is in cache, so that sums have its bits."""
        if self._settings.average and self._ranks > 1:
            buffer.mul_(1 / self._ranks)
        # below dist.all_reduce, whose checks and log take as long as a small bucket does
        work = self._group.allreduce([buffer], self._sum)
        return work.get_future().then(_first)

    def _count(self, sent: int, work_s: float = 0.0) -> None:
        with self._counting:
            self.bytes_sent += sent
            self.work_s += work_s

    def _work(
        self,
        reducer: Reducer,
        state: _Bucket,
        gradients: list[Tensor],
        buffer: Tensor,
        step: int,
    ) -> None:
        """Sum a bucket, in the thread of its lane: one after the other, in the same order on every rank."""
        before, start = reducer.channel.bytes_sent, thread_time()
        x = buffer.numpy()
        if state.choice is None or step - state.looked >= _LOOK_EVERY:
            state.choice, state.looked = self._look(reducer, x, state), step
        plain = state.choice.method == "dense" and (self._settings.bypass or not any(state.chosen))
        if self._settings.exact or plain or state.choice.method in ("gather", "owners"):
            reducer.sum_as(x, state.choice)
        elif all(state.chosen):
            self._sum_chosen(reducer, x, state, step)
        else:
            self._sum_parts(reducer, gradients, state, step)
        if self._settings.average:
            np.divide(x, self._ranks, out=x)
        self._count(reducer.channel.bytes_sent - before, thread_time() - start)

    def _hand_over(self, future: Any, buffer: Tensor, work: Future[None]) -> None:
        """Let DDP go on; an error that it were given would come out as a tensor that it cannot read."""
        self._failure = self._failure or work.exception()
        future.set_result(buffer)

    def _raise_failure(self) -> None:
        """Raise what went wrong in this backward, or before: no step is taken with such gradients."""
        if self._failure is not None:
            raise self._failure

    def _look(self, reducer: Reducer, x: Any, state: _Bucket) -> Choice:
        if self._settings.rounded:
            return Choice("rounded")
        assert self._measured is not None, "asked for before the first bucket"
        reducer.adopt(*self._measured.result())
        if self._settings.large is not None:
            return reducer.pays(len(x), self._settings.large.keep)
        lossless = self._settings.method is None
        if self._settings.exact or (lossless and not any(state.chosen)):
            return reducer.choose(x)
        no_loss = isinstance(self._settings.codec, Lossless)
        coded = reducer.pays(len(x), DENSE_SHARE["lossless" if no_loss else "levels"])
        if not lossless:
            return coded
        zeros = reducer.choose(x)
        return coded if zeros.method == "dense" or coded.seconds < zeros.seconds else zeros

    def _sum_chosen(self, reducer: Reducer, x: Any, state: _Bucket, step: int) -> None:
        """Sum parameters that need not be exact, side by side."""
        if self._settings.large is not None:
            reducer.sum_large(x, state.memory, self._settings.large)
        elif self._settings.codec is not None:
            reducer.sum_coded(x, state.layers, self._settings.codec, step)
        else:
            reducer.sum_rounded(x, self._settings.network)

    def _sum_parts(self, reducer: Reducer, gradients: list[Tensor], state: _Bucket, step: int) -> None:
        """Sum the parameters of a bucket that need not be exact together, and then the others."""
        for chosen in (True, False):
            part = [g for g, mine in zip(gradients, state.chosen, strict=True) if mine is chosen]
            if not part:
                continue
            flat = torch.cat([gradient.reshape(-1) for gradient in part])
            if chosen:
                self._sum_chosen(reducer, flat.numpy(), state, step)
            else:
                reducer.sum_as(flat.numpy(), Choice("dense"))
            for gradient, total in zip(part, torch.split(flat, [g.numel() for g in part]), strict=True):
                gradient.copy_(total.view_as(gradient))

    def _state_of(self, bucket: Any) -> _Bucket:
        """Find what is known of a bucket; DDP makes others after the first step, and memory moves with its parameter."""
        parameters = bucket.parameters()
        key = tuple(id(parameter) for parameter in parameters)
        if key in self._buckets:
            return self._buckets[key]
        names = [self._names[i] for i in key]
        chosen = [name in self._settings.chosen for name in names]
        layers = [(n, p.numel()) for n, p, mine in zip(names, parameters, chosen, strict=True) if mine]
        memory = self._held_back.lay_out(layers if self._settings.large is not None else [])
        ends = np.cumsum([0, *(size for _, size in layers)])
        state = _Bucket(chosen, ends, memory)
        self._buckets = {k: b for k, b in self._buckets.items() if not set(k) & set(key)}
        self._buckets[key] = state
        return state


def _at_the_end_of_backward(call: Callable[[], None]) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(call)


def _plain_bytes(buffer: Tensor, ranks: int) -> int:
    """Bytes that a rank sends of a bucket when DDP does it: in a ring, or, what is sparse, all to everyone."""
    if buffer.is_sparse:
        return (ranks - 1) * (buffer._indices().nbytes + buffer._values().nbytes)
    return int(ring_bytes(buffer.nbytes, ranks))


def _first(done: torch.futures.Future[list[Tensor]]) -> Tensor:
    return done.value()[0]  # raises where a peer is lost


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
