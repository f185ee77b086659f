"""Tensors of the Open Inference Protocol v2: a request to named arrays, an answer to bytes.

::

    body:  JSON                       with the data of every tensor in it
           JSON, bytes, bytes, ...    with the data of some tensors behind it

In the second form, the header Inference-Header-Content-Length has the length of the JSON. A tensor
whose data are behind it has ``parameters.binary_data_size``; data are little-endian and in order. A
text is its length in 4 bytes, then its bytes.

Anything that is not exactly this is refused with 400, before memory is taken for it: a tensor is at
most as large as the body that brought it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from laconic.serve.refusal import bad_request
from laconic.serve.signature import OUTPUT, RAW, RAW_VALUES

__all__ = ["Answer", "Inference", "read_header_length", "read_inference", "write_answer"]

Array = NDArray[Any]

_TYPES: dict[str, np.dtype[Any]] = {
    "FP32": np.dtype("<f4"),
    "INT64": np.dtype("<i8"),
    "INT32": np.dtype("<i4"),
}
_TEXT = np.dtype(object)  # each is bytes, or None where the value is missing
_RAW_TYPES = {"BYTES": _TEXT, "INT64": _TYPES["INT64"], "INT32": _TYPES["INT32"]}
_RAW_DENSE_TYPES = {"FP64": np.dtype("<f8"), "FP32": _TYPES["FP32"]}
_LONGEST_ID = 256
_JSON_TYPES: dict[str, tuple[set[type], str]] = {
    "f": ({int, float}, "numbers"),
    "i": ({int}, "integers"),
    "O": ({str}, "strings"),
}
_KNOWN = ("id", "inputs", "outputs", "parameters")


@dataclass(frozen=True, slots=True)
class Inference:
    """A request: its tensors, by name, and how the answer should look."""

    id: str | None
    tensors: dict[str, Array]
    binary_answer: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; ``header_bytes`` is the length of the JSON where bytes of a tensor follow it."""

    body: bytes
    header_bytes: int | None


def read_header_length(text: str | None, body_bytes: int) -> int | None:
    """Read the header Inference-Header-Content-Length; None where there is none."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) > body_bytes:
        raise bad_request(
            f"Inference-Header-Content-Length: expected a number of at most {body_bytes}, the length of the body, "
            f"got {text[:40]!r}"
        )
    return int(text)


def read_json(text: bytes | memoryview, where: str) -> dict[str, Any]:
    """Parse a JSON object; ``where`` begins the text of a refusal."""
    try:
        tree = from_json(bytes(text))
    except ValueError as error:
        raise bad_request(f"{where}: expected JSON, got something else: {error}") from None
    if not isinstance(tree, dict):
        raise bad_request(f"{where}: expected a JSON object, got {_kind(tree)}")
    return tree


def read_inference(body: bytes, header_bytes: int | None) -> Inference:
    """Read a body into its tensors; Refusal 400 for anything that is not as it should be."""
    view = memoryview(body)
    tree = read_json(view[:header_bytes], "request")
    if strange := [key for key in tree if key not in _KNOWN]:
        raise bad_request(f"request: no such field {strange[0][:80]!r} (known: {', '.join(_KNOWN)})")
    inputs = tree.get("inputs")
    if not isinstance(inputs, list) or not inputs:
        raise bad_request(f"inputs: expected a list of at least one tensor, got {_kind(inputs)}")
    rest = _Rest(view[len(view) if header_bytes is None else header_bytes :])
    tensors: dict[str, Array] = {}
    for number, entry in enumerate(inputs):
        name, array = _tensor(entry, f"inputs[{number}]", rest)
        if name in tensors:
            raise bad_request(f"inputs[{number}]: {name!r} was given before")
        tensors[name] = array
    rest.expect_end()
    return Inference(read_id(tree.get("id")), tensors, _binary_answer(tree))


def read_id(value: Any) -> str | None:
    """Read the id of a request, by which labels find it later; None where there is none."""
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > _LONGEST_ID:
        raise bad_request(
            f"id: expected a string of at most {_LONGEST_ID} characters, got {_kind(value)} {str(value)[:40]!r}"
        )
    return value


class _Rest:
    """Bytes behind the JSON, taken from the front."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._taken = view, 0

    def take(self, count: int, where: str) -> memoryview:
        left = len(self._view) - self._taken
        if count > left:
            raise bad_request(
                f"{where}.binary_data_size: expected at most {left} bytes, what the body has left, got {count}"
            )
        self._taken += count
        return self._view[self._taken - count : self._taken]

    def expect_end(self) -> None:
        if left := len(self._view) - self._taken:
            raise bad_request(f"request: {left} bytes behind the JSON belong to no tensor")


def _tensor(entry: Any, where: str, rest: _Rest) -> tuple[str, Array]:
    if not isinstance(entry, dict):
        raise bad_request(f"{where}: expected an object, got {_kind(entry)}")
    name = entry.get("name")
    if not isinstance(name, str):
        raise bad_request(f"{where}.name: expected a string, got {_kind(name)}")
    where = f"input {name[:80]!r}"
    datatype, raw = entry.get("datatype"), name == RAW or name.endswith(RAW_VALUES)
    types = _TYPES if not raw else _RAW_DENSE_TYPES if name == RAW else _RAW_TYPES
    if not isinstance(datatype, str) or datatype not in types:
        remedy = (
            f"send text as {(name + RAW_VALUES)[:80]!r}"
            if datatype == "BYTES" and not raw
            else "convert before sending"
        )
        raise bad_request(
            f"{where}: expected datatype {', '.join(types)}, got {str(datatype)[:40]!r}; {remedy}"
        )
    shape = _shape(entry.get("shape"), where)
    parameters = entry.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise bad_request(f"{where}.parameters: expected an object, got {_kind(parameters)}")
    if "shared_memory_region" in parameters:
        raise bad_request(f"{where}: shared memory is not supported; send the data in the body")
    if (size := parameters.get("binary_data_size")) is not None:
        if "data" in entry:
            raise bad_request(f"{where}: has both data and binary_data_size; leave one out")
        if types[datatype] == _TEXT:
            return name, _texts_from_bytes(size, shape, where, rest)
        return name, _from_bytes(size, types[datatype], shape, where, rest)
    return name, _from_list(entry.get("data"), types[datatype], shape, where, missing=raw)


def _shape(value: Any, where: str) -> tuple[int, ...]:
    fits = isinstance(value, list) and 1 <= len(value) <= 2
    if not fits or any(type(size) is not int or not 0 <= size < 1 << 31 for size in value):
        raise bad_request(
            f"{where}: expected a shape of one or two sizes from 0 to 2^31 - 1, got {str(value)[:80]}"
        )
    return tuple(value)


def _from_bytes(size: Any, dtype: np.dtype[Any], shape: tuple[int, ...], where: str, rest: _Rest) -> Array:
    expected = prod(shape) * dtype.itemsize
    if type(size) is not int or size != expected:
        raise bad_request(
            f"{where}: expected binary_data_size {expected} for {dtype.name} of shape {list(shape)}, got {str(size)[:40]}"
        )
    return np.frombuffer(rest.take(size, where), dtype=dtype).reshape(shape)


def _texts_from_bytes(size: Any, shape: tuple[int, ...], where: str, rest: _Rest) -> Array:
    count = prod(shape)
    if type(size) is not int or size < 4 * count:
        raise bad_request(
            f"{where}: expected binary_data_size of at least {4 * count} for BYTES of shape {list(shape)}, got "
            f"{str(size)[:40]}"
        )
    data, place = bytes(rest.take(size, where)), 0
    texts = np.empty(count, dtype=_TEXT)
    for number in range(count):
        length = int.from_bytes(data[place : place + 4], "little")
        texts[number] = data[place + 4 : place + 4 + length]
        if place + 4 + length > size:
            raise bad_request(f"{where}: text {number} ends beyond binary_data_size {size}")
        place += 4 + length
    if place != size:
        raise bad_request(f"{where}: {size - place} bytes behind the last of {count} texts")
    return texts.reshape(shape)


def _from_list(
    data: Any, dtype: np.dtype[Any], shape: tuple[int, ...], where: str, *, missing: bool
) -> Array:
    """Make an array of a list that is flat, or nested as the shape says.

    Types are checked first, for numpy would take strings for numbers. Null is a missing value,
    which is allowed where ``missing`` is true.
    """
    if not isinstance(data, list):
        raise bad_request(f"{where}: expected data as a list, or binary_data_size, got {_kind(data)}")
    if len(shape) == 2 and data and isinstance(data[0], list):
        if len(data) != shape[0] or any(not isinstance(row, list) or len(row) != shape[1] for row in data):
            raise bad_request(
                f"{where}: expected {shape[0]} lists of {shape[1]} numbers, got another nesting"
            )
        data = list(chain.from_iterable(data))
    if len(data) != prod(shape):
        raise bad_request(f"{where}: expected {prod(shape)} numbers for shape {list(shape)}, got {len(data)}")
    allowed, wanted = _JSON_TYPES[dtype.kind]
    kinds = set(map(type, data))
    if strange := kinds - allowed - ({type(None)} if missing else set()):
        raise bad_request(f"{where}: expected {wanted}, got {_name(strange.pop())} among them")
    try:
        if dtype == _TEXT:
            texts = np.empty(len(data), dtype=_TEXT)
            texts[:] = [None if text is None else text.encode() for text in data]
            return texts.reshape(shape)
        if type(None) in kinds:
            return _with_missing(data, dtype).reshape(shape)
        with np.errstate(over="ignore"):  # beyond float32 is infinite, which is refused with its place
            return (
                np.array(data, dtype=np.float64 if dtype.kind == "f" else dtype).astype(dtype).reshape(shape)
            )
    except UnicodeEncodeError:
        raise bad_request(f"{where}: expected strings of Unicode characters, got half of a pair") from None
    except OverflowError:
        raise bad_request(f"{where}: a number is too large for {dtype.name}") from None


def _with_missing(data: list[Any], dtype: np.dtype[Any]) -> Array:
    """Put NaN for null among numbers; among integers, mask it."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.array([math.nan if x is None else x for x in data], dtype=np.float64).astype(dtype)
    plain = np.array([0 if x is None else x for x in data], dtype=dtype)
    return np.ma.array(plain, mask=[x is None for x in data])


def _binary_answer(tree: dict[str, Any]) -> bool:
    """Whether the client wants the output as bytes behind the JSON."""
    parameters = tree.get("parameters") or {}
    outputs = tree.get("outputs") or []
    if not isinstance(parameters, dict) or not isinstance(outputs, list):
        raise bad_request("request: expected parameters as an object and outputs as a list")
    binary = parameters.get("binary_data_output", False)
    for own in _output_parameters(outputs):
        if "classification" in own or "shared_memory_region" in own:
            raise bad_request("outputs: classification and shared memory are not supported; leave them out")
        binary = own.get("binary_data", binary)
    if not isinstance(binary, bool):
        raise bad_request(f"request: expected true or false for binary output, got {_kind(binary)}")
    return binary


def _output_parameters(outputs: list[Any]) -> Iterator[dict[str, Any]]:
    for number, entry in enumerate(outputs):
        if not isinstance(entry, dict):
            raise bad_request(
                f'outputs[{number}]: expected an object, got {str(entry)[:80]!r}; send {{"name": "{OUTPUT}"}}'
            )
        name = entry.get("name")
        if name != OUTPUT or number:
            raise bad_request(f"outputs[{number}]: expected {OUTPUT!r}, once, got {str(name)[:80]!r}")
        own = entry.get("parameters") or {}
        if not isinstance(own, dict):
            raise bad_request(f"outputs[{number}].parameters: expected an object, got {_kind(own)}")
        yield own


def write_answer(model: str, version: str, request_id: str, probability_B: Array, *, binary: bool) -> Answer:
    """Write the probabilities of a request as an answer."""
    output: dict[str, Any] = {"name": OUTPUT, "datatype": "FP32", "shape": [probability_B.size]}
    raw = b""
    if binary:
        raw = probability_B.astype("<f4").tobytes()
        output["parameters"] = {"binary_data_size": len(raw)}
    else:
        output["data"] = probability_B.astype(np.float64).tolist()
    tree = {"model_name": model, "model_version": version, "id": request_id, "outputs": [output]}
    head = json.dumps(tree).encode()
    return Answer(head + raw, len(head) if binary else None)


def _kind(value: Any) -> str:
    return _name(type(value))


def _name(kind: type) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(kind, "a number")
