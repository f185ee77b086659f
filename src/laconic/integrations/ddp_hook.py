"""The hook of ``DistributedDataParallel``: buckets of gradients, summed in two lanes.

One bucket is encoded while another travels. A bucket that would not get faster is left to DDP and
counted; state belongs to parameters by name, because DDP rebuilds its buckets.
"""

# DDP reads the hook's annotations, so they must not become strings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Lock
from time import perf_counter, thread_time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from laconic.codecs import Lossless
from laconic.cost.link import DENSE_SHARE, ring_bytes
from laconic.errors import ConfigError
from laconic.exchange.ranks.worker import Worker
from laconic.exchange.ranks.world import GroupWorld, World, one_rank
from laconic.exchange.traffic_report import Bypass, FlowTotal, Traffic, TrafficReport
from laconic.integrations.ddp_bucket import Account, Bucket
from laconic.integrations.divided_steps import DividedSteps
from laconic.reduce import Choice, Exact, LargeFirst, Levels, Reducer, Rounded
from laconic.reduce.gradient_method import GradientMethod
from laconic.reduce.ways.large_first import HeldBack

__all__ = ["Compressor", "HookSettings", "ddp_hook"]

_LANES = 2  # buckets under way at a time: one is encoded while another travels
_LOOK_EVERY = 256  # steps between two looks at how full a bucket is
_CLOSED = "register_ddp: the compressor is closed; wrap the model anew, and register it again"
_NO_GAIN = "no faster than DDP"  # the link is fast, or little is zero


@dataclass(frozen=True, slots=True)
class HookSettings:
    """How gradients travel."""

    method: GradientMethod | None
    """What gradients travel as; None: without loss, by what is faster."""
    chosen: frozenset[str]
    """Names of the parameters that travel by the method."""
    warmup: int
    """Number of first steps that DDP sums."""
    average: bool
    """Whether sums are divided by the number of ranks."""
    bypass: bool
    """Whether buckets that would not get faster are left to DDP."""
    divided: DividedSteps | None = None
    """What an optimizer divides gradients by, where large entries of its steps travel."""


def ddp_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    """Sum a bucket over all ranks; what DDP calls, its state a ``Compressor``."""
    return state.reduce(bucket)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Lane:
    """A wire, and the thread that uses it."""

    reducer: Reducer
    worker: Worker


class Compressor:
    """State of the hook: memory of what was not sent, and a count of what was."""

    def __init__(
        self, settings: HookSettings, parameters: Mapping[str, Tensor], group: Any, world: World | None
    ) -> None:
        self._settings, self._group = settings, group
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._sizes = {name: parameter.numel() for name, parameter in parameters.items()}
        method = settings.method
        self._exact = isinstance(method, Exact)
        self._large = method if isinstance(method, LargeFirst) else None
        self._network: Any = method if hasattr(method, "unite") else None
        self._rounded = isinstance(method, Rounded) or self._network is not None
        self._codec: Any = Lossless() if method is None else method  # of what is none of these
        self._rank, self._ranks = dist.get_rank(group), dist.get_world_size(group)
        world = one_rank() if self._ranks == 1 else world or GroupWorld(group=group)
        lanes = 1 if self._network is not None else _LANES  # a network sums one thing at a time
        self._lanes = [
            _Lane(Reducer(world, f"all-reduce {k}"), Worker(f"laconic-ddp-{k}", _CLOSED))
            for k in range(lanes)
        ]
        self._measured: Future[tuple[Any, Any]] | None = None
        self._counting = Lock()
        self._buckets: dict[tuple[int, ...], Bucket] = {}
        self._accounts: dict[str, Account] = {}
        # by index: values of a bucket, the step until which DDP's way is best, and the bucket; the
        # same on every rank, as choices must be
        self._dense: dict[int, tuple[int, int, Bucket]] = {}
        self._sum = dist.AllreduceOptions()
        self._held_back = HeldBack(self._rank, self._ranks)
        self.step = 0
        """Backward passes that were synchronized."""
        self.work_s = 0.0
        """Seconds that this rank computed for buckets that were not bypassed: codecs and sums."""
        self._seconds = np.zeros(3)  # encoding, on the wire, decoding
        self._failure: BaseException | None = None

    def __repr__(self) -> str:
        method, parameters = self._settings.method or "lossless", len(self._settings.chosen)
        return f"Compressor({method!s}, {parameters=}, ranks={self._ranks}, step={self.step})"

    def reduce(self, bucket: Any) -> Any:
        """Sum one bucket over all ranks; what DDP calls."""
        buffer, index, step = bucket.buffer(), bucket.index(), self.step
        self.step += bool(bucket.is_last())
        # what is not worth compressing is not worth a second thought either
        values, until, state = self._dense.get(index, (0, 0, None))
        reason: str | None = _NO_GAIN
        if state is None or step >= until or buffer.numel() != values:
            state = self._state_of(bucket)
            reason = self._why_plain(state, buffer, step)
            if reason is not None and state.choice is not None:
                self._dense[index] = (buffer.numel(), state.looked + _LOOK_EVERY, state)
        ring = _sparse_bytes(buffer, self._ranks) if buffer.is_sparse else state.ring
        state.account.before += ring
        state.account.messages += 1
        if reason is not None:
            state.account.bypassed[reason] += 1
            state.account.sent += ring
            if self._settings.divided is not None:
                self._settings.divided.forget(state.parameters)
            return self._plain(buffer)
        future: Any = torch.futures.Future()
        if self._measured is None and not self._rounded:  # before anything else travels
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
        self.step, self.work_s = 0, 0.0
        self._seconds[:] = 0
        self._accounts.clear()
        self._dense.clear()
        for bucket in self._buckets.values():
            bucket.choice, bucket.account = None, self._account_of(bucket.account.name)

    def look_again(self) -> None:
        """Measure the link anew before the next step, and choose by that.

        Every rank calls it alike, while nothing is on its way.
        """
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
        self._held_back.load_state_dict(state, self._sizes)
        self.step = int(state["step"])
        self._buckets.clear()
        self._dense.clear()

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sent, what DDP itself sends for a bypassed bucket included."""
        return sum(account.sent for account in self._accounts.values())

    @property
    def bytes_dense(self) -> int:
        """Bytes that a ring all-reduce of everything would have sent."""
        return sum(account.before for account in self._accounts.values())

    @property
    def buckets(self) -> int:
        """Number of buckets that were summed, whichever way they traveled."""
        return sum(account.messages for account in self._accounts.values())

    @property
    def bypassed(self) -> int:
        """Number of buckets that traveled as DDP would send them."""
        return sum(account.bypassed.total() for account in self._accounts.values())

    def report(self) -> TrafficReport:
        """Return what traveled so far, by bucket.

        Seconds are those of buckets that were not bypassed. Encoding is what comes before a
        bucket's first message, decoding what is neither that nor a message; with more than two
        ranks that includes encoding sums.
        """
        accounts = self._accounts.values()
        rows = [Traffic(account.name, "dense", account.before, account.sent) for account in accounts]
        with self._counting:
            seconds = self._seconds.tolist()
        total = FlowTotal("dense", self.step, self.bytes_dense, self.bytes_sent, *seconds)
        bypassed = [Bypass(a.name, reason, n) for a in accounts for reason, n in a.bypassed.items()]
        return TrafficReport(self._rank, self._ranks, tuple(rows), (total,), tuple(bypassed))

    def close(self) -> None:
        """Finish what was asked, and leave the wire; again, it does nothing."""
        for lane in self._lanes:
            lane.worker.close()
            lane.reducer.close()
        if self._settings.divided is not None:
            self._settings.divided.close()

    def _why_plain(self, state: Bucket, buffer: Tensor, step: int) -> str | None:
        """Why a bucket travels as DDP would send it; None: it does not."""
        if buffer.is_sparse:
            return "sparse gradients"
        if not self._lanes[0].reducer.accepts(buffer):
            return f"gradients of {buffer.dtype} on {buffer.device}"
        if step < self._settings.warmup:
            return "warm-up"
        if self._settings.divided is not None and not self._settings.divided.ready(state.parameters):
            return "first steps of the optimizer"
        if not self._settings.bypass or state.choice is None or step - state.looked >= _LOOK_EVERY:
            return None
        return _NO_GAIN if state.choice.method == "dense" else None

    def _plain(self, buffer: Tensor) -> Any:
        """Send as DDP does: scaled before, while it is in cache, so that sums have its bits."""
        if self._settings.average and self._ranks > 1:
            buffer.mul_(1 / self._ranks)
        # below dist.all_reduce, whose checks and log take as long as a small bucket does
        work = self._group.allreduce([buffer], self._sum)
        return work.get_future().then(_first)

    def _work(
        self,
        reducer: Reducer,
        state: Bucket,
        gradients: list[Tensor],
        buffer: Tensor,
        step: int,
    ) -> None:
        """Sum a bucket in the thread of its lane, in the same order on every rank."""
        before, worked_s = reducer.channel.bytes_sent, thread_time()
        x = buffer.numpy()
        if state.choice is None or step - state.looked >= _LOOK_EVERY:
            state.choice, state.looked = self._look(reducer, x, state), step
        began_s, encoded_s = perf_counter(), reducer.channel.encode_s
        reducer.channel.transport.take_time()  # a look is no part of the sum
        plain = state.choice.method == "dense" and (self._settings.bypass or not any(state.chosen))
        if self._exact or plain or state.choice.method in ("gather", "owners"):
            reducer.sum_as(x, state.choice)
        elif all(state.chosen):
            self._sum_chosen(reducer, x, state, step)
        else:
            self._sum_parts(reducer, gradients, state, step)
        if self._settings.average:
            np.divide(x, self._ranks, out=x)
        state.account.sent += reducer.channel.bytes_sent - before
        encode_s, wire_s = reducer.channel.encode_s - encoded_s, reducer.channel.transport.take_time()
        decode_s = max(perf_counter() - began_s - encode_s - wire_s, 0.0)
        with self._counting:
            self.work_s += thread_time() - worked_s
            self._seconds += (encode_s, wire_s, decode_s)

    def _hand_over(self, future: Any, buffer: Tensor, work: Future[None]) -> None:
        """Let DDP go on; it cannot read an error, so that comes out at the end of backward."""
        self._failure = self._failure or work.exception()
        future.set_result(buffer)

    def _raise_failure(self) -> None:
        """Raise what went wrong in this backward or before: its gradients are no good."""
        if self._failure is not None:
            raise self._failure

    def _look(self, reducer: Reducer, x: Any, state: Bucket) -> Choice:
        if self._rounded:
            return Choice("rounded")
        assert self._measured is not None, "asked for before the first bucket"
        reducer.adopt(*self._measured.result())
        if self._large is not None:
            return reducer.pays(len(x), self._large.keep)
        lossless = self._settings.method is None
        if self._exact or (lossless and not any(state.chosen)):
            return reducer.choose(x)
        no_loss = isinstance(self._codec, Lossless)
        coded = reducer.pays(len(x), DENSE_SHARE["lossless" if no_loss else "levels"])
        if not lossless:
            return coded
        zeros = reducer.choose(x)
        return coded if zeros.method == "dense" or coded.seconds < zeros.seconds else zeros

    def _sum_chosen(self, reducer: Reducer, x: Any, state: Bucket, step: int) -> None:
        """Sum parameters that need not be exact, side by side."""
        if self._large is not None and state.memory is not None:
            self._sum_large(reducer, x, state, self._large, step)
        elif self._rounded:
            reducer.sum_rounded(x, self._network)
        else:
            reducer.sum_coded(x, state.layers, self._codec, step)

    def _sum_large(self, reducer: Reducer, x: Any, state: Bucket, how: LargeFirst, step: int) -> None:
        """Sum what ranks send of their gradients, or of an optimizer's steps."""
        memory, divided = state.memory, self._settings.divided
        assert memory is not None, "of a bucket whose entries may wait"
        if divided is None:
            reducer.sum_large(x, memory, how)
            return
        scale = float(self._ranks if self._settings.average else 1)
        divided.divide(x, memory.squares, state.parameters, self._ranks, scale)
        reducer.sum_large(x, memory, how)
        if (step + 1) % how.agree_every == 0:
            reducer.sum_coded(memory.squares, state.layers, Levels(), step)
            divided.agree(memory.squares, state.parameters)
            memory.squares[:] = 0
        divided.restore(x, state.parameters, scale)

    def _sum_parts(self, reducer: Reducer, gradients: list[Tensor], state: Bucket, step: int) -> None:
        """Sum the parameters of a bucket that need not be exact together, and then the others."""
        for chosen in (True, False):
            part = [g for g, mine in zip(gradients, state.chosen, strict=True) if mine is chosen]
            if not part:
                continue
            flat = torch.cat([gradient.reshape(-1) for gradient in part])
            x = flat.numpy()
            if chosen:
                self._sum_chosen(reducer, x, state, step)
            else:
                reducer.sum_as(x, Choice("dense"))
            for gradient, total in zip(part, torch.split(flat, [g.numel() for g in part]), strict=True):
                gradient.copy_(total.view_as(gradient))

    def _state_of(self, bucket: Any) -> Bucket:
        """Find what is known of a bucket, or begin to know it.

        DDP makes other buckets after the first step, and memory moves with its parameter.
        """
        parameters, buffer = bucket.parameters(), bucket.buffer()
        key = tuple(id(parameter) for parameter in parameters)
        if key in self._buckets:
            return self._buckets[key]
        names = [self._names[i] for i in key]
        chosen = [name in self._settings.chosen for name in names]
        layers = [(n, p.numel()) for n, p, mine in zip(names, parameters, chosen, strict=True) if mine]
        taken = [parameter for parameter, mine in zip(parameters, chosen, strict=True) if mine]
        memory = None if self._large is None else self._held_back.lay_out(layers)
        ends = np.cumsum([0, *(size for _, size in layers)])
        account = self._account_of(_name_of([name for name in self._names.values() if name in names]))
        ring = 0 if buffer.is_sparse else int(ring_bytes(buffer.nbytes, self._ranks))
        state = Bucket(account, ring, chosen, taken, ends, memory)
        self._buckets = {k: b for k, b in self._buckets.items() if not set(k) & set(key)}
        self._buckets[key] = state
        return state

    def _account_of(self, name: str) -> Account:
        return self._accounts.setdefault(name, Account(name))


def _name_of(parameters: Sequence[str]) -> str:
    """Name a bucket by its first parameter and its last, in the order of the model."""
    return parameters[0] if len(parameters) == 1 else f"{parameters[0]} .. {parameters[-1]}"


def _at_the_end_of_backward(call: Callable[[], None]) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(call)


def _sparse_bytes(buffer: Tensor, ranks: int) -> int:
    """Bytes that a rank sends of a sparse bucket when DDP sums it: all of it to everyone."""
    return (ranks - 1) * (buffer._indices().nbytes + buffer._values().nbytes)


def _first(done: torch.futures.Future[list[Tensor]]) -> Tensor:
    return done.value()[0]  # raises where a peer is lost
