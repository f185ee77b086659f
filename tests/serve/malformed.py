"""Requests that no client should send, drawn from a seed: name of the damage, body, headers."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.serve.served import ROWS, Question

Tree = dict[str, Any]
_STRANGE = [
    None,
    True,
    -1,
    1.5,
    "7",
    "",
    [],
    {},
    [[]],
    1 << 70,
    float("nan"),
    [None],
    ["x" * 1000],
    -(1 << 63) - 1,
]
_TABLES = ["item", "shop", "tags"]  # user has a row for unknown ids


def _pick(tree: Tree, rng: random.Random) -> Tree:
    return rng.choice(tree["inputs"])


def _named(tree: Tree, name: str) -> Tree:
    return next(entry for entry in tree["inputs"] if entry["name"] == name)


def _shape(tree: Tree, rng: random.Random) -> None:
    entry = _pick(tree, rng)
    entry["shape"] = rng.choice(
        [[], [0], [1 << 40], [-1], [len(entry["data"]) + 1], [2, 3, 4], "7", [1.0], [True]]
    )


def _data_length(tree: Tree, rng: random.Random) -> None:
    entry = _pick(tree, rng)
    entry["data"] = entry["data"][:-1] if rng.random() < 0.5 else [*entry["data"], 0]


def _strange_value(tree: Tree, rng: random.Random) -> None:
    entry = _named(tree, rng.choice(_TABLES))
    strange = [value for value in _STRANGE if value != [] or not entry["data"]]
    if entry["data"]:
        entry["data"][rng.randrange(len(entry["data"]))] = rng.choice(strange)
    else:
        entry["data"] = rng.choice(["", None, {}])


def _strange_dense(tree: Tree, rng: random.Random) -> None:
    entry = _named(tree, "dense")
    strange = [None, True, "1", float("nan"), float("inf"), -float("inf"), 1e300, 10**400, [], {}]
    entry["data"][rng.randrange(len(entry["data"]))] = rng.choice(strange)


def _huge_id(tree: Tree, rng: random.Random) -> None:
    entry = _named(tree, rng.choice(["item", "shop"]))
    rows = ROWS[entry["name"]]
    entry["data"][rng.randrange(len(entry["data"]))] = rng.choice(
        [rows, -1, (1 << 63) - 1, 1 << 63, 1 << 64, -(1 << 63)]
    )


def _lengths(tree: Tree, rng: random.Random) -> None:
    entry = _named(tree, "tags.lengths")
    entry["data"][rng.randrange(len(entry["data"]))] += rng.choice([-5, 1, 7, (1 << 31) - 10, 1 << 40])


def _datatype(tree: Tree, rng: random.Random) -> None:
    entry = _pick(tree, rng)
    wrong = ["BYTES", "FP64", "", None, 3, "BOOL", "FP16"]
    wrong.append("INT64" if entry["name"] == "dense" else "FP32")
    entry["datatype"] = rng.choice(wrong)


def _input_names(tree: Tree, rng: random.Random) -> None:
    entry = _pick(tree, rng)
    while entry["name"] == "tags.lengths":  # without it, ids of B bags with one id each may be what was meant
        entry = _pick(tree, rng)
    what = rng.randrange(4)
    if what == 0:
        tree["inputs"].remove(entry)
    elif what == 1:
        entry["name"] = rng.choice(["", None, 3, "strange", "x" * 5000])
    elif what == 2:
        tree["inputs"].append(copy.deepcopy(entry))
    else:
        tree["inputs"].append({**entry, "name": "item.lengths"})


def _top_level(tree: Tree, rng: random.Random) -> None:
    key = rng.choice(["inputs", "outputs", "parameters", "id", "strange"])
    wrong: list[Any] = [3, "x", True, [3], [None], {"a": 1}, [[]], [{}]]
    if key == "parameters":
        wrong = [3, "x", True, [3], {"binary_data_output": 3}, {"binary_data_output": "yes"}]
    elif key == "id":
        wrong = [3, True, [3], {"a": 1}, "x" * 300]
    elif key == "outputs":
        wrong = [
            3,
            "x",
            {"a": 1},
            [3],
            [{"name": "logit"}],
            ["probability"] * 2,
            [{"name": "probability", "parameters": 3}],
        ]
    tree[key] = rng.choice(wrong)


def _binary_size(tree: Tree, rng: random.Random) -> None:
    entry = _pick(tree, rng)
    if rng.random() < 0.5:
        del entry["data"]
    entry["parameters"] = {"binary_data_size": rng.choice([-1, 1, 1 << 60, "8", None, True, 3.0])}
    if entry["parameters"]["binary_data_size"] is None:
        entry["data"] = None


_TREES: list[Callable[[Tree, random.Random], None]] = [
    _shape, _data_length, _strange_value, _strange_dense, _huge_id, _lengths, _datatype, _input_names, _top_level, _binary_size,
]  # fmt: skip


def _binary(question: Question) -> tuple[bytes, int]:
    """A right request with binary tensors, to be damaged."""
    tree = question.body()
    raw = b""
    for entry, x in zip(tree["inputs"], question.tensors().values(), strict=True):
        del entry["data"]
        entry["parameters"] = {"binary_data_size": x.nbytes}
        raw += x.tobytes()
    head = json.dumps(tree).encode()
    return head + raw, len(head)


def _damaged_bytes(question: Question, rng: random.Random) -> tuple[str, bytes, dict[str, str]]:
    body, head = _binary(question)
    length = "Inference-Header-Content-Length"
    damages = [
        ("truncated tensors", body[: rng.randrange(head, len(body))], {length: str(head)}),
        ("truncated json", body[: rng.randrange(head)], {}),
        ("trailing bytes", body + b"x" * rng.randrange(1, 9), {length: str(head)}),
        (
            "header length",
            body,
            {length: rng.choice(["-1", "x", "", "1e3", str(len(body) + 1), "9" * 30, str(head - 1)])},
        ),
        ("no header length", body, {}),
        ("random bytes", rng.randbytes(rng.randrange(200)), {}),
        ("deep nesting", b"[" * rng.randrange(1, 100_000), {}),
        ("not an object", rng.choice([b"[]", b"3", b'"x"', b"null", b"", b"{}"]), {}),
        ("encoding", rng.randbytes(40), {"Content-Encoding": rng.choice(["gzip", "deflate", "br", "x"])}),
    ]
    return rng.choice(damages)


def malformed(count: int, seed: int) -> Iterator[tuple[str, bytes, dict[str, str]]]:
    """Yield damaged requests; every one must be refused."""
    rng, numpy_rng = random.Random(seed), np.random.default_rng(seed)
    while count:
        question = Question.draw(numpy_rng, rng.randrange(2, 6))
        if not question.ids["tags"].size:
            continue
        if rng.random() < 0.3:
            yield _damaged_bytes(question, rng)
        else:
            tree = question.body()
            damage = rng.choice(_TREES)
            damage(tree, rng)
            yield damage.__name__, json.dumps(tree).encode(), {}
        count -= 1
