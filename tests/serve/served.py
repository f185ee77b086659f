"""A small real model as an artifact, a server of it in a thread, and requests."""

from __future__ import annotations

import dataclasses
import json
import queue
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laconic.lookups import Lookups
from laconic.quantize.formats import (
    DenseFeature,
    Features,
    LayerPrecision,
    ModelShape,
    Recipe,
    RowFormat,
    TableFeature,
    TablePrecision,
    TrainedModel,
    quantize_model,
    write_artifact,
)
from laconic.serve import Engine
from laconic.serve.server import serve
from laconic.serve.settings import ServerSettings

PATIENCE_S = 60
DENSE = 3
ROWS = {"item": 5000, "shop": 500, "tags": 300, "user": 2000}
"""``tags`` has bags; ``user`` has a row for unknown ids, the last."""


def small_model(seed: int = 0) -> TrainedModel:
    """Random weights, of a size that makes all tables matter."""
    torch.manual_seed(seed)
    shape = ModelShape(dense=DENSE, tables=len(ROWS), dim=8, bottom=(16,), top=(24, 16))
    features = Features(
        dense=tuple(DenseFeature(name=f"d{f}", mean=1.0, deviation=2.0) for f in range(DENSE)),
        tables=tuple(
            TableFeature(name=name, rows=rows, bag=name == "tags", unknown=name == "user")
            for name, rows in ROWS.items()
        ),
    )
    tables = {name: torch.randn(rows, shape.dim) for name, rows in ROWS.items()}
    return TrainedModel(shape, features, tables, shape.build().state_dict())


def write_small_artifact(
    folder: Path, seed: int = 0, metrics: dict[str, float] | None = None
) -> TrainedModel:
    """Int8 tables, fp32 layers but for one."""
    model = small_model(seed)
    recipe = Recipe.uniform(ROWS, model.shape.layer_names(), table=TablePrecision(format=RowFormat.INT8))
    recipe.layers["top.0"] = LayerPrecision(kind="bf16")
    write_artifact(
        folder, dataclasses.replace(quantize_model(model, recipe), metrics=metrics or {}), shadow=model
    )
    return model


@dataclass
class Question:
    """Samples, as both a client and a model want them."""

    dense_BF: np.ndarray
    ids: dict[str, np.ndarray]
    lengths_B: np.ndarray

    @classmethod
    def draw(
        cls, generator: np.random.Generator, samples: int, shift: dict[str, int] | None = None
    ) -> Question:
        """Ids are skewed to small ones; ``shift`` moves those of a table."""
        lengths_B = generator.integers(0, 4, samples)
        ids = {}
        for name, rows in ROWS.items():
            count = int(lengths_B.sum()) if name == "tags" else samples
            drawn = (generator.random(count) ** 3 * (rows - 1)).astype(np.int64)
            ids[name] = (drawn + (shift or {}).get(name, 0)) % (rows - 1)
        dense_BF = generator.standard_normal((samples, DENSE)).astype(np.float32)
        return cls(dense_BF, ids, lengths_B.astype(np.int32))

    def tensors(self) -> dict[str, np.ndarray]:
        """Inputs by name."""
        return {"dense": self.dense_BF, **self.ids, "tags.lengths": self.lengths_B}

    def lookups(self) -> Lookups:
        """What the model looks up."""
        ones = np.ones(len(self.dense_BF), dtype=np.int64)
        lengths = [self.lengths_B if name == "tags" else ones for name in ROWS]
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
        ids_L = np.concatenate([self.ids[name] for name in ROWS])
        return Lookups(torch.from_numpy(ids_L), torch.from_numpy(offsets), len(ROWS))

    def body(self, name: str | None = None) -> dict[str, Any]:
        """The request, as JSON will have it."""
        kinds = {"float32": "FP32", "int64": "INT64", "int32": "INT32"}
        inputs = [
            {
                "name": key,
                "shape": list(x.shape),
                "datatype": kinds[x.dtype.name],
                "data": x.reshape(-1).tolist(),
            }
            for key, x in self.tensors().items()
        ]
        return {"inputs": inputs} if name is None else {"id": name, "inputs": inputs}


def _no_json(constant: str) -> None:
    raise ValueError(f"expected JSON, got {constant}, which only Python reads")


@dataclass
class Running:
    """A server, and a connection to it that is used over and over."""

    host: str
    port: int
    connection: HTTPConnection

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None):
        """Status, JSON or bytes, headers; connects anew where the server has closed."""
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        self.connection.request(method, path, raw, headers or {})
        response = self.connection.getresponse()
        content = response.read()
        kind = response.getheader("content-type", "")
        answer = json.loads(content, parse_constant=_no_json) if "json" in kind else content
        return response.status, answer, response.headers

    def infer(self, body: Any, headers: dict[str, str] | None = None):
        """Ask for scores."""
        return self.ask("POST", "/v2/models/model/infer", body, headers)

    def watch(self) -> dict[str, Any]:
        """What the watch has seen."""
        return self.ask("GET", "/v2/models/model/watch")[1]

    def raw(self, data: bytes) -> socket.socket:
        """Send bytes that no client library would."""
        connection = socket.create_connection((self.host, self.port), timeout=PATIENCE_S)
        connection.sendall(data)
        return connection


@contextmanager
def running(load, token: str | None = None, **settings: Any):
    """Serve in a thread; ``load`` makes an engine.

    Deadlines are long, so that no request is refused because this machine is busy.
    """
    settings["batching"] = {"deadline_ms": 1e3 * PATIENCE_S, **settings.get("batching", {})}
    heard: queue.Queue[Any] = queue.Queue()

    def run() -> None:
        try:
            serve(load, ServerSettings(port=0, **settings), token=token, ready=heard.put)
        except BaseException as error:  # the test hears of it instead of waiting
            heard.put(error)
            raise

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    listening = heard.get(timeout=PATIENCE_S)
    if isinstance(listening, BaseException):
        raise listening
    host, _, port = listening.url.removeprefix("http://").rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
    try:
        yield Running(host, int(port), connection)
    finally:
        connection.close()
        listening.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def load_from(folder: Path):
    """As the command does it."""
    return lambda: Engine.load(folder)


def held(folder: Path, go: threading.Event):
    """Load an artifact whose scores wait until ``go`` is set."""

    class Held(Engine):
        def score(self, dense_BF, lookups):
            go.wait()
            return super().score(dense_BF, lookups)

        def shadow(self):
            return Engine.load(folder).shadow()

    return lambda: Held.load(folder)


def damage(engine: Engine, table: str, rng: np.random.Generator) -> None:
    """Give a table other codes in the engine's memory, as failing memory would.

    The files stay as they are.
    """
    artifact = engine.artifact
    rows = artifact.tables[table].clone()
    codes = rows.numpy()[:, : artifact.shape.dim]
    codes[:] = rng.integers(0, 256, codes.shape, dtype=np.uint8)
    damaged = Engine(dataclasses.replace(artifact, tables={**artifact.tables, table: rows}))
    engine._tables = damaged._tables
