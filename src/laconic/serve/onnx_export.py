"""ONNX export: a DLRM as an ONNX graph, for people who serve elsewhere.

::

    inputs    dense  float32 [samples, F]       (absent without dense features)
              ids    int64   [T, samples]       one id for every table and sample
    output    logits float32 [samples]

Rows keep their codes: a table is uint8 codes, R x D, and a scale and a bias for every row. They are
restored after the gather exactly as the engine does it. A code takes a byte, in int4 and int2 too.
Weights are restored from what the artifact stores. Inputs of layers are not rounded, which is
closer to fp32 than the engine is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from laconic.errors import ConfigError
from laconic.quantize.formats import Artifact, ModelShape, RowFormat
from laconic.quantize.formats.layers import restored_weight

__all__ = ["Graph", "dlrm_graph", "export_onnx"]

OPSET = 17
_MOST_BYTES = 2**31 - 2**20  # a protobuf holds 2 GB


class Graph:
    """Nodes and constants of a graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """Add a constant and return its name."""
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def model(self, inputs: list[Any]) -> Any:
        """Make the model; its output is called logits."""
        output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["samples"])
        graph = helper.make_graph(self.nodes, "dlrm", inputs, [output], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def export_onnx(artifact: Artifact, path: str | Path) -> None:
    """Write an artifact as ONNX; ``ConfigError`` for bags, other models and more than 2 GB."""
    bags = [table.name for table in artifact.features.tables if table.bag]
    if artifact.shape.kind != "dlrm" or bags:
        what = f"bags, got {bags[0]!r}" if bags else f"models but dlrm, got {artifact.shape.kind!r}"
        raise ConfigError(f"onnx: no {what}; serve it with laconic serve")
    expected = sum(table.rows * (artifact.shape.dim + 8) for table in artifact.features.tables)
    if expected > _MOST_BYTES:
        raise ConfigError(
            f"onnx: tables of {expected / 2**30:.1f} GB, but an ONNX file holds 2; serve it with laconic serve"
        )
    graph = Graph()
    rows = []
    for t, table in enumerate(artifact.features.tables):
        id_ = graph.node("Gather", ["ids", graph.constant(f"t{t}", np.array(t, np.int64))], f"id_{t}", axis=0)
        rows.append(
            _row(
                graph,
                t,
                artifact.tables[table.name],
                artifact.recipe.tables[table.name].format,
                id_,
                artifact.shape.dim,
            )
        )
    layers = {name: (restored_weight(layer).numpy(), _bias(layer)) for name, layer in artifact.layers.items()}
    onnx.save(dlrm_graph(graph, artifact.shape, rows, layers), str(path))


def dlrm_graph(
    graph: Graph,
    shape: ModelShape,
    rows: list[str],
    layers: dict[str, tuple[NDArray[Any], NDArray[Any]]],
    tables: list[Any] | None = None,
) -> Any:
    """Add everything behind the lookups; ``rows`` names the rows of each table, samples x D.

    ``tables`` are further inputs of the graph.
    """
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, [shape.tables, "samples"]),
        *(tables or []),
    ]
    vectors = list(rows)
    if shape.dense:
        inputs.insert(0, helper.make_tensor_value_info("dense", TensorProto.FLOAT, ["samples", shape.dense]))
        bottom = [name for name in layers if name.startswith("bottom.")]
        vectors.insert(0, _chain(graph, "dense", bottom, layers, relu_last=True))
    axis = graph.constant("axis", np.array([1], np.int64))
    lifted = [graph.node("Unsqueeze", [vector, axis], f"v_{i}") for i, vector in enumerate(vectors)]
    together = graph.node("Concat", lifted, "vectors", axis=1)
    transposed = graph.node("Transpose", [together], "transposed", perm=[0, 2, 1])
    dots = graph.node("MatMul", [together, transposed], "dots")
    flat = graph.node("Reshape", [dots, graph.constant("flat_shape", np.array([0, -1], np.int64))], "flat")
    below, left = torch.tril_indices(len(vectors), len(vectors), offset=-1)
    pairs = graph.constant("pairs", (below * len(vectors) + left).numpy())
    picked = graph.node("Gather", [flat, pairs], "picked", axis=1)
    joined = graph.node("Concat", [vectors[0], picked], "joined", axis=1) if shape.dense else picked
    top = [name for name in layers if name.startswith("top.")]
    last = _chain(graph, joined, [*top, "logit"], layers, relu_last=False)
    graph.node("Squeeze", [last, axis], "logits")
    return graph.model(inputs)


def _chain(
    graph: Graph,
    x: str,
    names: list[str],
    layers: dict[str, tuple[NDArray[Any], NDArray[Any]]],
    *,
    relu_last: bool,
) -> str:
    for name in names:
        weight, bias = layers[name]
        w = graph.constant(f"{name}.weight", weight.T)
        x = graph.node("MatMul", [x, w], f"{name}.product")
        x = graph.node("Add", [x, graph.constant(f"{name}.bias", bias)], f"{name}.sum")
        if relu_last or name != names[-1]:
            x = graph.node("Relu", [x], f"{name}.out")
    return x


def _bias(layer: dict[str, torch.Tensor]) -> NDArray[Any]:
    if "bias" in layer:
        return layer["bias"].numpy()
    return np.zeros(len(layer["weight"]), np.float32)


def _row(graph: Graph, t: int, table_RW: torch.Tensor, format: RowFormat, id_: str, dim: int) -> str:
    if format in (RowFormat.FP32, RowFormat.FP16):
        kind = np.float32 if format is RowFormat.FP32 else np.float16
        table = graph.constant(f"table_{t}", table_RW.contiguous().numpy().view(kind))
        row = graph.node("Gather", [table, id_], f"raw_{t}", axis=0)
        return graph.node("Cast", [row], f"row_{t}", to=TensorProto.FLOAT)
    size = (dim * format.bits + 7) // 8
    raw = table_RW.numpy()
    shifts = np.arange(0, 8, format.bits, dtype=np.uint8)
    codes = ((raw[:, :size, None] >> shifts) & (2**format.bits - 1)).reshape(len(raw), -1)[:, :dim]
    kind = np.float32 if format is RowFormat.INT8 else np.float16
    pair = np.ascontiguousarray(raw[:, size:]).view(kind).astype(np.float32)
    code = graph.node("Gather", [graph.constant(f"table_{t}", codes), id_], f"code_{t}", axis=0)
    both = [
        graph.node(
            "Gather", [graph.constant(f"{name}_{t}", pair[:, i : i + 1]), id_], f"row_{name}_{t}", axis=0
        )
        for i, name in enumerate(("scale", "bias"))
    ]
    value = graph.node("Cast", [code], f"value_{t}", to=TensorProto.FLOAT)
    return graph.node("Add", [graph.node("Mul", [value, both[0]], f"scaled_{t}"), both[1]], f"row_{t}")
