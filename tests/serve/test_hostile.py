"""Clients that are wrong, slow, too many or malicious."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from contextlib import suppress

import numpy as np
import pytest

from laconic.serve import Engine
from tests.serve.malformed import malformed
from tests.serve.served import PATIENCE_S, Question, held, load_from, running


def head(length: str, path: str = "/v2/models/model/infer") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n".encode()


def received(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def send_forever(connection: socket.socket, data: bytes) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        connection.sendall(data)
        time.sleep(0.01)


def test_hundreds_of_malformed_requests_are_refused_each_with_its_reason(server):
    wrong = []
    for number, (damage, body, headers) in enumerate(malformed(400, seed=7)):
        status, answer, _ = server.infer(body, headers)
        if not 400 <= status < 500 or not answer["error"]:
            wrong.append((number, damage, status, answer, body[:300]))
    assert wrong == []
    assert server.infer(Question.draw(np.random.default_rng(0), 3).body())[0] == 200


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"shape": [2, 4]}, "input 'dense': expected 8 numbers for shape [2, 4], got 6"),
        ({"datatype": "FP64"}, "input 'dense': expected datatype FP32, INT64, INT32, got 'FP64'; convert before sending"),
        ({"datatype": "INT64", "data": [1] * 6}, "input 'dense': expected FP32 of shape [2, 3], got int64 of shape [2, 3]"),
        ({"data": [0, 0, 0, 0, float("nan"), 0]}, "input 'dense': sample 1, feature 'd1': expected a finite number, got nan"),
        ({"data": ["1"] * 6}, "input 'dense': expected numbers, got a string among them"),
        ({"name": "desne"}, "request: lacks 1 inputs, the first is 'dense'"),
        ({"shape": [2, 3], "data": [[1, 2, 3], [1, 2]]}, "input 'dense': expected 2 lists of 3 numbers, got another nesting"),
    ],
)  # fmt: skip
def test_the_message_names_what_is_wrong(server, change, text):
    body = Question.draw(np.random.default_rng(0), 2).body()
    body["inputs"][0] |= change
    status, answer, _ = server.infer(json.dumps(body).encode())
    assert (status, answer["error"]) == (400, text)


@pytest.mark.parametrize("entry", ["probability", 3, None, ["probability"]])
def test_outputs_that_are_no_objects_are_refused_with_the_remedy(server, entry):
    body = Question.draw(np.random.default_rng(0), 2).body() | {"outputs": [entry]}
    status, answer, _ = server.infer(json.dumps(body).encode())
    expected = f'outputs[0]: expected an object, got {str(entry)!r}; send {{"name": "probability"}}'
    assert (status, answer["error"]) == (400, expected)


def test_paths_and_methods_that_do_not_exist(server):
    assert server.ask("GET", "/v2/models/model/infer")[0] == 405
    assert server.ask("GET", "/nothing")[:2] == (404, {"error": "GET /nothing: Not Found"})
    assert server.ask("POST", "/v2/models/other/infer", b"{}")[:2] == (
        404, {"error": "no model 'other'; this server has 'model'"},
    )  # fmt: skip
    assert server.ask("POST", "/v2/models/model/versions/9/infer", b"{}")[0] == 404
    assert server.ask("POST", "/v2/repository/models/model/load", b"{}")[0] == 403


def test_what_is_too_large_is_refused(artifact):
    with running(load_from(artifact), limits={"body_mb": 0.01, "samples": 4, "ids": 20}) as server:
        rng = np.random.default_rng(0)
        status, answer, _ = server.infer(Question.draw(rng, 5).body())
        assert (status, answer["error"]) == (413, "request: expected at most 4 samples, got 5; send several")
        bags = Question.draw(rng, 3)
        bags.ids["tags"], bags.lengths_B = np.zeros(20, np.int64), np.array([20, 0, 0], np.int32)
        assert (
            server.infer(bags.body())[1]["error"] == "request: expected at most 20 ids, got 29; send several"
        )
        status, answer, _ = server.infer(b" " * 10_486)
        assert status == 413
        assert "at most 10485 bytes, got 10486 or more" in answer["error"]
        assert server.infer(Question.draw(rng, 1).body())[0] == 200  # on the same connection


def test_a_chunked_body_ends_where_the_limit_is(artifact):
    with running(load_from(artifact), limits={"body_mb": 0.1, "head_s": 0.4}) as server:
        with server.raw(head("Transfer-Encoding: chunked")) as connection:
            chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
            connection.sendall(chunk * 2)
            assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                send_forever(connection, chunk)  # what comes is dropped, and after that time the connection
        assert server.ask("GET", "/v2/health/live")[0] == 200


def test_dawdlers_are_closed_and_others_served(artifact):
    with running(load_from(artifact), limits={"head_s": 0.3, "body_s": 0.3}) as server:
        slow_head = server.raw(b"POST /v2/models/model/in")
        silent = server.raw(b"")
        slow_body = server.raw(head("Content-Length: 100") + b"{")
        served = server.raw(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert served.recv(65536).startswith(b"HTTP/1.1 200 ")
        served.sendall(b"GET /v2/he")  # a second head on a connection that was good once
        for connection in (slow_head, silent, served):
            with suppress(ConnectionResetError):
                assert received(connection) == b""
            connection.close()
        assert slow_body.recv(65536).startswith(b"HTTP/1.1 408 ")
        slow_body.close()
        assert server.infer(Question.draw(np.random.default_rng(0), 1).body())[0] == 200


def test_connections_beyond_the_limit_are_told_so(artifact):
    with running(load_from(artifact), limits={"connections": 2}) as server:
        held = [server.raw(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(2)]
        for connection in held:
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        with server.raw(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n") as one_more:
            answer = received(one_more)
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert answer.endswith(b'{"error":"server: too many connections at once; try again"}')
        for connection in held:
            connection.close()
        deadline = time.monotonic() + PATIENCE_S
        while server.ask("GET", "/v2/health/live")[0] == 429:  # until the server has seen them go
            server.connection.close()
            assert time.monotonic() < deadline


def test_a_token_is_asked_for_everywhere_but_of_health(artifact):
    token = "0123456789abcdef"
    with running(load_from(artifact), token=token) as server:
        assert server.ask("GET", "/v2/health/ready")[0] == 200
        body = Question.draw(np.random.default_rng(0), 1).body()
        for headers in (
            {},
            {"Authorization": f"Basic {token}"},
            {"Authorization": "Bearer 0123456789abcdeg"},
            {"Authorization": "Bearer é"},
        ):
            status, answer, got = server.infer(body, headers)
            assert (status, got["www-authenticate"]) == (401, "Bearer")
            assert token not in answer["error"]
            assert server.ask("GET", "/metrics", headers=headers)[0] == 401
        assert server.infer(body, {"Authorization": f"Bearer {token}"})[0] == 200


def test_a_full_queue_is_429_with_a_time_to_come_back(artifact):
    """The engine waits until it is let go: what comes meanwhile fills the queue."""
    go = threading.Event()
    go.set()
    batching = {"waiting_samples": 4, "max_samples": 2, "deadline_ms": 60_000.0}
    with running(held(artifact, go), batching=batching) as server:
        body = Question.draw(np.random.default_rng(0), 2).body()
        go.clear()
        raw = json.dumps(body).encode()
        asked = [server.raw(head(f"Content-Length: {len(raw)}\r\nConnection: close") + raw) for _ in range(5)]
        refused: set[socket.socket] = set()
        while len(refused) < 3:
            refused |= set(select.select(asked, [], [], PATIENCE_S)[0])
        go.set()
        statuses = [received(connection) for connection in asked]
        for connection in asked:
            connection.close()
    assert sorted(answer[9:12] for answer in statuses) == [b"200", b"200", b"429", b"429", b"429"]
    assert all(b"retry-after: 1\r\n" in answer for answer in statuses if answer[9:12] == b"429")


def test_finite_numbers_that_no_layer_can_compute_with_are_the_requests_fault(server):
    question = Question.draw(np.random.default_rng(0), 3)
    question.dense_BF[1] = [2.9e38, 2.9e38, 3e38]
    body = question.body()
    raw = {
        "name": "raw",
        "datatype": "FP64",
        "data": (2 * question.dense_BF.astype(float) + 1).reshape(-1).tolist(),
    }
    for entry in (body["inputs"][0], body["inputs"][0] | raw):
        status, answer, _ = server.infer(body | {"inputs": [entry, *body["inputs"][1:]]})
        assert (status, answer["error"]) == (
            400,
            "request: sample 1: expected dense features that the model can compute with, got 'd2' = "
            "3e+38 (as the model takes it), which makes the score not a number; send values as large as "
            "those it was trained on",
        )
    question.dense_BF[1] = 3e3
    assert server.infer(question.body())[0] == 200


def test_a_model_that_returns_nan_is_an_error_not_an_answer(artifact):
    class Broken(Engine):
        def score(self, dense_BF, lookups):
            return np.full(len(dense_BF), np.nan, np.float32)

    with running(lambda: Broken.load(artifact)) as server:
        status, answer, _ = server.infer(Question.draw(np.random.default_rng(0), 2).body())
        assert status == 500
        assert answer["error"] == "model: sample 0: the score is not a number; the artifact may be damaged"
