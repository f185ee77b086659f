"""What is refused from its head, and what is not, while the queue is full."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager, suppress

import numpy as np
import pytest

from tests.serve.served import PATIENCE_S, Question, held, running

INFER = "/v2/models/model/infer"
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = json.dumps(Question.draw(np.random.default_rng(0), 2).body()).encode()


def head(*fields: str, path: str = INFER) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", *fields, "", ""]).encode()


def usual(length: int = len(BODY), *fields: str, path: str = INFER) -> bytes:
    return head("Host: x", f"Content-Length: {length}", *fields, path=path)


@contextmanager
def full(artifact, token=None, **limits):
    """Serve with a queue that has no room until ``go`` is set."""
    go = threading.Event()
    go.set()
    batching = {"waiting_samples": 2, "max_samples": 2}
    with running(held(artifact, go), token, batching=batching, limits=limits) as server:
        go.clear()
        fields = [] if token is None else [f"Authorization: Bearer {token}"]
        first = server.raw(usual(len(BODY), *fields) + BODY)
        try:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            deadline = time.monotonic() + PATIENCE_S
            while b"laconic_waiting_samples 2.0" not in server.ask("GET", "/metrics", headers=headers)[1]:
                assert time.monotonic() < deadline
            yield server, go
        finally:
            go.set()
            with first:
                assert first.recv(65536).startswith(b"HTTP/1.1 200 ")


def answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """The next one: status, fields, body."""
    with suppress(ConnectionResetError):
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(1)
        lines = data.decode().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:-2])
        body = b""
        while len(body) < int(fields.get("content-length", 0)):
            body += connection.recv(1)
        return int(lines[0].split()[1]), fields, body
    pytest.fail("the connection was reset")


def test_the_answer_comes_before_the_body_and_the_connection_stays(artifact):
    with full(artifact) as (server, go), server.raw(usual() + BODY[:10]) as connection:
        status, fields, body = answer(connection)
        assert (status, fields["retry-after"], fields["content-type"]) == (429, "1", "application/json")
        assert json.loads(body) == {"error": "server: 2 samples wait already; try again"}
        connection.sendall(BODY[10:-1])
        connection.sendall(BODY[-1:] + LIVE)  # the next request is in the same packet as the last byte
        assert answer(connection)[0] == 200
        connection.sendall(usual() + BODY + usual() + BODY)
        assert [answer(connection)[0] for _ in range(2)] == [429, 429]
        assert b'laconic_requests_total{status="429"} 3.0' in server.ask("GET", "/metrics")[1]
        go.set()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            connection.sendall(usual() + BODY)
            status, _, body = answer(connection)
            if status == 200:
                break
            assert time.monotonic() < deadline
    assert len(json.loads(body)["outputs"][0]["data"]) == 2


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (usual(path="/v2/models/other/infer"), 404),
        (usual(path="/v2/models/model/versions/9/infer"), 404),
        (usual(1 << 30), 429),
        (usual(5, "Content-Length: 6"), 400),
        (usual(5, "Host: y"), 400),
        (head("Content-Length: 5"), 400),
        (head("Host: x", "Content-Length: 5x"), 400),
        (head("Host: x", "Content-Length: -5"), 400),
        (head("Host: x", "Content-Length: 5", "Spa ce: 1"), 400),
        (head("Host: x", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 429),
        (usual(5, "Transfer-Encoding: chunked") + b"0\r\n\r\n", 429),
        (usual(0, "Connection: close"), 429),
    ],
)
def test_what_is_unusual_goes_the_usual_way(request_, status, artifact_is_full):
    server, _ = artifact_is_full
    with server.raw(request_) as connection:
        assert answer(connection)[0] == status
    with server.raw(LIVE) as connection:
        assert answer(connection)[0] == 200


@pytest.fixture(scope="module")
def artifact_is_full(artifact):
    with full(artifact, body_mb=0.1) as pair:
        yield pair


def test_a_token_is_asked_for_first(artifact):
    token = "0123456789abcdef"
    with full(artifact, token) as (server, _):
        for fields, status in (
            ([], 401),
            (["Authorization: Bearer 0123456789abcdeg"], 401),
            ([f"authorization: bearer  {token} "], 429),
        ):
            with server.raw(usual(len(BODY), *fields) + BODY) as connection:
                assert answer(connection)[0] == status


def test_a_refused_body_may_not_dawdle(artifact):
    with full(artifact, head_s=0.3) as (server, _), server.raw(usual() + BODY[:10]) as connection:
        assert answer(connection)[0] == 429
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
