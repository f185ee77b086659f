"""A thread that does one thing after the other, in the order in which it was asked.

Unlike a pool it does not keep the process alive: a rank whose main thread failed ends at once, and
its peers notice, instead of waiting for a message that never comes. What follows a failed task
fails with it, because ranks are out of step from there on; unless all of them refused a batch.

A daemon thread that frees a tensor while the interpreter ends aborts the process: torch takes the
GIL back in a destructor, and Python ends the thread there. So nothing is freed here once its result
is known, and threads end before the interpreter does.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakSet, finalize

from laconic.errors import ConfigError, PlanError

__all__ = ["RefusedBatchError", "Worker"]

Result = TypeVar("Result")
_PATIENCE_S = (
    1.0  # for tasks that are not done when the process ends; one that waits for a peer never will be
)


class RefusedBatchError(ConfigError):
    """A batch that every rank refuses, because one cannot look it up.

    Nothing has changed, and the next batch may follow.
    """


Task = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class Worker:
    """One thread and its queue; the thread ends when nobody has the worker any more."""

    def __init__(self, name: str, when_closed: str = "embeddings: closed; make new ones") -> None:
        """``when_closed``: what an owner says to those who ask for more after its end."""
        self._when_closed = when_closed
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._closed = False
        self._thread = Thread(target=_work, args=(self._tasks,), name=name, daemon=True)
        self._thread.start()
        finalize(self, self._tasks.put, None).atexit = False  # then, _end_all does it
        _open.add(self)

    def submit(self, task: Callable[..., Result], *args: Any) -> Future[Result]:
        """Do this after all that was asked before."""
        if self._closed:
            raise PlanError(self._when_closed)
        future: Future[Result] = Future()
        self._tasks.put((future, task, args))
        return future

    def close(self, timeout_s: float | None = None) -> None:
        """Finish what was asked, then end the thread; wait no longer than ``timeout_s`` for it."""
        self._closed = True
        self._tasks.put(None)
        self._thread.join(timeout_s)


def _work(tasks: SimpleQueue[Task | None]) -> None:
    first_failure: BaseException | None = None
    while (entry := tasks.get()) is not None:
        future, task, args = entry
        del entry
        outcome: list[Any] = []  # whose only entry moves on to the future
        failure = first_failure
        try:
            if failure is None:
                outcome.append(task(*args))
        except RefusedBatchError as error:
            failure = error
        except BaseException as error:
            failure = first_failure = error
        del task, args  # before anybody hears of the result, and before the next task comes
        if failure is None:
            future.set_result(outcome.pop())
        else:
            future.set_exception(failure)
        del future, failure


_open: WeakSet[Worker] = WeakSet()


def _end(workers: Iterable[Worker]) -> None:
    until = monotonic() + _PATIENCE_S
    for worker in workers:
        worker.close(max(0.0, until - monotonic()))


@atexit.register
def _end_all() -> None:
    """End all threads, before the interpreter takes itself apart."""
    _end(list(_open))
