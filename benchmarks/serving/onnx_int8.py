"""A trained DLRM for ONNX Runtime: layers quantized by its own tool, tables in float32 as inputs of the graph."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from laconic.machine import has_vnni
from laconic.quantize.formats import TrainedModel
from laconic.quantize.formats.trained_model import linear_layers
from laconic.serve.onnx_export import Graph, dlrm_graph

__all__ = ["int8_model"]


def int8_model(trained: TrainedModel) -> bytes:
    """Return a serialized graph: inputs dense, ids and table_0, table_1, ..."""
    from onnx import save
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph, rows, tables = Graph(), [], []
    for t, table in enumerate(trained.features.tables):
        id_ = graph.node("Gather", ["ids", graph.constant(f"t{t}", np.array(t, np.int64))], f"id_{t}", axis=0)
        rows.append(graph.node("Gather", [f"table_{t}", id_], f"row_{t}", axis=0))
        tables.append(
            helper.make_tensor_value_info(f"table_{t}", TensorProto.FLOAT, [table.rows, trained.shape.dim])
        )
    layers = {
        name: (layer.weight.detach().numpy(), layer.bias.detach().numpy())
        for name, layer in linear_layers(trained.dense_part()).items()
    }
    model = dlrm_graph(graph, trained.shape, rows, layers, tables)
    logging.getLogger().setLevel(logging.ERROR)  # its tool advises on the root logger
    with tempfile.TemporaryDirectory() as folder:
        plain, small = Path(folder, "fp32.onnx"), Path(folder, "int8.onnx")
        save(model, str(plain))
        quantize_dynamic(
            plain,
            small,
            per_channel=True,
            reduce_range=not has_vnni(),  # without, its sums of two products saturate, and scores are off
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["MatMul"],
            nodes_to_exclude=["dots"],
        )
        return small.read_bytes()
