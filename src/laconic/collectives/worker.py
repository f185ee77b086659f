"""A thread that does one thing after the other, in the order in which it was asked.

Unlike a pool it does not keep the process alive: a rank whose main thread failed ends at once, and
its peers notice, instead of waiting for a message that never comes. What follows a failed task
fails with it, because ranks are out of step from there on.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from laconic.errors import PlanError

__all__ = ["Worker"]

Result = TypeVar("Result")


class Worker:
    """One thread and its queue."""

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None] = (
            SimpleQueue()
        )
        self._failure: BaseException | None = None
        self._closed = False
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, task: Callable[..., Result], *args: Any) -> Future[Result]:
        """Do this after all that was asked before."""
        if self._closed:
            raise PlanError("embeddings: closed; make new ones")
        future: Future[Result] = Future()
        self._tasks.put((future, task, args))
        return future

    def close(self) -> None:
        """Finish what was asked, then end the thread."""
        self._closed = True
        self._tasks.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (entry := self._tasks.get()) is not None:
            future, task, args = entry
            if self._failure is not None:
                future.set_exception(self._failure)
                del entry, future, task, args
                continue
            try:
                future.set_result(task(*args))
            except BaseException as error:
                self._failure = error
                future.set_exception(error)
            del entry, future, task, args  # or they live, with all that they hold, until the next one comes
