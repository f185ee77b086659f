"""What a server keeps: old models go at once, and nothing that clients name grows without end."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import laconic.serve.server
from laconic.cli.serve import serve as serve_command
from laconic.serve.deployment import Deployment, Repository
from laconic.serve.metrics import Metrics
from laconic.serve.query import Query
from laconic.serve.refusal import Refusal
from laconic.serve.settings import Batching, ServerSettings, Watching
from laconic.serve.tensors import Inference
from laconic.serve.watch.labels import Outcomes
from laconic.serve.watch.watch import Watch
from tests.serve.served import DENSE, PATIENCE_S, ROWS, Question, load_from, running

TOKEN = "a-token-of-the-tests"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def no_collector():
    """Only reference counts free memory."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def ask(samples: int = 2, name: str | None = None) -> Inference:
    return Inference(name, Question.draw(np.random.default_rng(0), samples).tensors(), False)


async def reload_and_see_it_freed(repository: Repository) -> None:
    """Reload, and see the old engine and its weights go as soon as its threads have ended."""
    engine = repository.current().batcher.engine
    parts = [weakref.ref(engine), weakref.ref(engine._network)]
    del engine
    await repository.reload()
    await asyncio.gather(*repository._retiring)
    assert [part() for part in parts] == [None, None]


def test_a_reload_frees_the_old_model_without_the_garbage_collector(artifact, no_collector):
    async def run():
        repository = Repository(load_from(artifact), ServerSettings(), Metrics())
        await repository.adopt(load_from(artifact)())
        for _ in range(2):
            await repository.current().infer(ask())
            await reload_and_see_it_freed(repository)
        await repository.close()

    asyncio.run(run())


def test_requests_that_were_refused_do_not_keep_an_old_model(artifact, no_collector):
    async def run():
        settings = ServerSettings(batching=Batching(deadline_ms=1e-6))
        repository = Repository(load_from(artifact), settings, Metrics())
        await repository.adopt(load_from(artifact)())
        refused = 0
        try:
            await repository.current().infer(ask())
        except Refusal as refusal:
            refused = refusal.status
        await reload_and_see_it_freed(repository)
        await repository.close()
        return refused

    assert asyncio.run(run()) == 429


def test_a_server_does_not_keep_the_model_that_it_began_with(artifact, no_collector):
    engines = []

    def load():
        engine = load_from(artifact)()
        engines.append(weakref.ref(engine))
        return engine

    with running(load, token=TOKEN) as server:
        assert server.infer(Question.draw(np.random.default_rng(0), 2).body(), HEADERS)[0] == 200
        assert server.ask("POST", "/v2/repository/models/model/load", b"{}", HEADERS)[0] == 200
        deadline = time.monotonic() + PATIENCE_S
        while engines[0]() is not None:  # its threads are being joined
            assert time.monotonic() < deadline
            server.ask("GET", "/v2/health/live")


def test_the_command_does_not_keep_the_model_that_it_began_with(artifact, no_collector, monkeypatch, capsys):
    def run(load, _settings, *, token, ready):
        engine = weakref.ref(load())
        ready(laconic.serve.server.Listening("http://127.0.0.1:8000", lambda: None))
        assert engine() is None

    monkeypatch.setattr(laconic.serve.server, "serve", run)
    monkeypatch.delenv("LACONIC_SERVE_TOKEN", raising=False)
    serve_command(artifact, None, None, None, [], None, Path("-"))
    assert json.loads(capsys.readouterr().out)["url"] == "http://127.0.0.1:8000"


def test_requests_without_samples_leave_nothing_behind(artifact):
    async def run():
        deployment = Deployment(load_from(artifact)(), [], ServerSettings(), Metrics())
        for _ in range(20):
            await deployment.infer(ask(samples=0))
        watch = deployment.watch
        assert (watch.report()["requests"], len(watch._outcomes._scored), len(watch._queue)) == (20, 0, 0)
        await deployment.retire()

    asyncio.run(run())


def test_a_remembered_score_does_not_keep_the_batch_it_was_scored_in():
    outcomes = Outcomes(remembered=10, window=100)
    batch_B = np.zeros(4096, np.float32)
    scored = outcomes.remember("one of many", batch_B[:1])
    outcomes.add_shadow(scored, batch_B[:1])
    assert scored.live_B.base is None
    assert scored.shadow_B.base is None


def query_of(samples: int, ids: int) -> Query:
    lengths_TB = np.ones((len(ROWS), samples), np.int64)
    lengths_TB[list(ROWS).index("tags"), 0] = ids
    dense_BF = np.zeros((samples, DENSE), np.float32)
    return Query(dense_BF, np.zeros(lengths_TB.sum(), np.int64), lengths_TB, np.zeros(len(ROWS), np.int64))


def test_the_watch_does_not_keep_requests_of_very_many_ids(artifact):
    async def run():
        watch = Watch(load_from(artifact)(), Watching(), Metrics(), lambda engine: None)
        half = np.full(1, 0.5, np.float32)
        watch.observe("usual", query_of(1, 100), half)
        assert watch.report()["dropped"] == 0
        watch.observe("large", query_of(1, 10_000), half)
        assert watch.report()["dropped"] == 1
        await watch.closed()  # its thread is gone: what it is shown now waits
        for number in range(400):
            watch.observe(f"many {number}", query_of(100, 100_000), np.full(100, 0.5, np.float32))
        assert sum(seen.query.ids_L.nbytes for seen in watch._queue) < 100 << 20
        assert watch.report()["dropped"] > 300

    asyncio.run(run())


def test_a_body_that_arrives_during_a_reload_is_answered(artifact):
    body = json.dumps(Question.draw(np.random.default_rng(0), 2).body()).encode()
    head = f"POST /v2/models/model/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    with running(load_from(artifact), token=TOKEN) as server:
        request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode()
        with server.raw(request + body[:10]) as half:
            deadline = time.monotonic() + PATIENCE_S
            while b"laconic_bodies_bytes 10.0" not in server.ask("GET", "/metrics", headers=HEADERS)[1]:
                assert time.monotonic() < deadline
            for _ in range(2):
                assert server.ask("POST", "/v2/repository/models/model/load", b"{}", HEADERS)[0] == 200
            half.sendall(body[10:])
            assert half.recv(4096).startswith(b"HTTP/1.1 200 ")
