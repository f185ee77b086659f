"""Another artifact takes over while requests come, and an orderly end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection

import numpy as np
import pytest

from laconic.errors import PlanError
from laconic.serve import Engine
from laconic.serve.server import listen
from tests.serve.served import PATIENCE_S, Question, load_from, running, write_small_artifact
from tests.warm import python

TOKEN = "a token of the tests".replace(" ", "-")
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def link(artifact, tmp_path):
    """A link to the artifact of all tests, beside another artifact."""
    write_small_artifact(tmp_path / "other", seed=5)
    (tmp_path / "current").symlink_to(artifact)
    return tmp_path / "current"


def point(link, target):
    fresh = link.with_name("fresh")
    fresh.symlink_to(target)
    os.replace(fresh, link)


class Asker:
    """A client that asks the same without a pause and keeps what it hears."""

    def __init__(self, server, body):
        self.answers: list[tuple[int, bytes]] = []
        self._server, self._body, self._end = server, json.dumps(body), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        connection = HTTPConnection(self._server.host, self._server.port, timeout=PATIENCE_S)
        while not self._end.is_set():
            connection.request("POST", "/v2/models/model/infer", self._body, HEADERS)
            response = connection.getresponse()
            self.answers.append((response.status, response.read()))
        connection.close()

    def stop(self):
        self._end.set()
        self._thread.join()
        return self.answers


def test_a_reload_under_load_fails_no_request(link, artifact):
    question = Question.draw(np.random.default_rng(3), 4)
    other = link.with_name("other")
    expected = {}
    for folder in (artifact, other):
        version = load_from(folder)().version
        expected[version] = Engine.load(folder).score(question.dense_BF, question.lookups())
    assert len(expected) == 2
    with running(load_from(link), token=TOKEN) as server:
        askers = [Asker(server, question.body()) for _ in range(4)]
        for target in (other, artifact, other):
            point(link, target)
            status, answer, _ = server.ask("POST", "/v2/repository/models/model/load", b"{}", HEADERS)
            assert (status, answer) == (200, {"version": load_from(target)().version})
        answers = [answer for asker in askers for answer in asker.stop()]
        reloads = server.ask("GET", "/metrics", headers=HEADERS)[1].decode()
    assert {status for status, _ in answers} == {200}
    seen = set()
    for _, raw in answers:
        answer = json.loads(raw)
        seen.add(answer["model_version"])
        scores = np.array(answer["outputs"][0]["data"], np.float32)
        np.testing.assert_allclose(scores, expected[answer["model_version"]], rtol=1e-5)
    assert seen == set(expected)
    assert 'laconic_reloads_total{result="done"} 3.0' in reloads


def test_a_damaged_artifact_is_not_taken(link):
    broken = link.with_name("broken")
    write_small_artifact(broken, seed=6)
    data = bytearray((broken / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (broken / "model.safetensors").write_bytes(data)
    with running(load_from(link), token=TOKEN) as server:
        before = server.ask("GET", "/v2/models/model", headers=HEADERS)[1]["versions"]
        point(link, broken)
        status, answer, _ = server.ask("POST", "/v2/repository/models/model/load", b"{}", HEADERS)
        assert status == 400
        assert "its checksum does not match" in answer["error"]
        assert server.ask("GET", "/v2/models/model", headers=HEADERS)[1]["versions"] == before
        assert server.infer(Question.draw(np.random.default_rng(0), 1).body(), HEADERS)[0] == 200


@pytest.fixture
def command(link, tmp_path):
    """``laconic serve`` in a process of its own: the process and where it listens."""
    described = tmp_path / "ready.json"
    process = subprocess.Popen(
        [
            *(*python(), "-c", "from laconic.cli import main; main()", "serve", str(link)),
            *("--port", "0", "--json", str(described), "--set", "limits.drain_s=20"),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + PATIENCE_S
    while not (described.exists() and described.read_text().endswith("}\n")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    host, _, port = json.loads(described.read_text())["url"].removeprefix("http://").rpartition(":")
    try:
        yield process, (host, int(port))
    finally:
        process.kill()
        process.communicate()


def version_at(address):
    connection = HTTPConnection(*address, timeout=PATIENCE_S)
    connection.request("GET", "/v2/models/model")
    version = json.loads(connection.getresponse().read())["versions"][0]
    connection.close()
    return version


def test_hangup_reloads_and_terminate_answers_what_is_here(command, link):
    process, address = command
    other = link.with_name("other")
    point(link, other)
    process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + PATIENCE_S
    while version_at(address) != load_from(other)().version:
        assert time.monotonic() < deadline
    body = json.dumps(Question.draw(np.random.default_rng(0), 2).body()).encode()
    request = (
        f"POST /v2/models/model/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    )
    with socket.create_connection(address, timeout=PATIENCE_S) as half:
        half.sendall(request + body[:10])
        with socket.create_connection(address, timeout=PATIENCE_S) as other_client:
            other_client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert other_client.recv(4096)  # so the first is being read by now
            process.send_signal(signal.SIGTERM)
            assert other_client.recv(4096) == b""  # idle, so closed
        half.sendall(body[10:])
        answer = b""
        while part := half.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert process.wait(PATIENCE_S) == 0


def test_a_second_signal_does_not_wait(command):
    process, address = command
    with socket.create_connection(address, timeout=PATIENCE_S) as half:
        half.sendall(b"POST /v2/models/model/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        version_at(address)
        process.send_signal(signal.SIGTERM)
        while b"told to stop: answering" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_an_address_that_is_taken_is_an_error_with_a_remedy():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = f"serve: expected to listen on 127.0.0.1 port {port}, got 'Address already in use'; choose an address"
        with pytest.raises(PlanError, match=text):
            listen("127.0.0.1", port)
