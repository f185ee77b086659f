"""The thread of a wire: order, failures, and what is left of a task when it is done."""

from __future__ import annotations

import subprocess
import sys
import weakref
from threading import Event

import pytest

from laconic.errors import PlanError
from laconic.exchange.ranks import worker as workers
from laconic.exchange.ranks.worker import Worker


class Thing:
    """Something that can be watched."""


@pytest.fixture
def worker():
    worker = Worker("test")
    yield worker
    worker.close()


def test_a_task_and_its_arguments_are_gone_when_its_result_is_there(worker):
    """Or a worker frees a tensor while the interpreter ends, which aborts the process."""
    gate, thing, seen = Event(), Thing(), []
    watched = weakref.ref(thing)

    def task(_argument: Thing) -> int:
        gate.wait()
        return 3

    asked = weakref.ref(task)
    future = worker.submit(task, thing)
    del thing, task
    future.add_done_callback(lambda _: seen.append((watched(), asked())))
    gate.set()
    assert future.result() == 3
    worker.submit(int).result()  # callbacks are done too
    assert seen == [(None, None)]


def test_a_result_is_kept_by_nobody_but_its_future(worker):
    future = worker.submit(Thing)
    watched = weakref.ref(future.result())
    worker.submit(int).result()
    assert watched() is not None
    del future
    assert watched() is None


def test_a_thread_ends_when_nobody_has_its_worker():
    worker = Worker("test")
    thread = worker._thread
    del worker
    thread.join(60)
    assert not thread.is_alive()


def test_what_follows_a_failed_task_fails_with_it(worker):
    failed, next_one = worker.submit(int, "x"), worker.submit(int, "3")
    assert failed.exception() is next_one.exception()
    assert isinstance(failed.exception(), ValueError)


def test_threads_have_ended_before_the_interpreter_takes_itself_apart():
    program = (
        "import atexit, runpy\n"
        "atexit.register(lambda: print([w._thread.is_alive() for w in made]))\n"  # after what is registered later
        f"Worker = runpy.run_path({workers.__file__!r})['Worker']\n"  # without torch, which takes seconds
        "made = [Worker('a'), Worker('b')]\n"
        "made[0].submit(int).result()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[False, False]\n"


def test_the_end_does_not_wait_for_a_thread_that_waits_for_a_peer(monkeypatch):
    monkeypatch.setattr(workers, "_PATIENCE_S", 0.0)
    gate, stuck = Event(), Worker("stuck")
    stuck.submit(gate.wait)
    workers._end([stuck])
    assert stuck._thread.is_alive()
    with pytest.raises(PlanError, match="closed"):
        stuck.submit(int)
    gate.set()
    stuck._thread.join()
