"""The ONNX graph of an artifact computes what the engine does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laconic.errors import ConfigError
from laconic.lookups import Lookups
from laconic.quantize.formats import (
    Features,
    LayerPrecision,
    Recipe,
    TablePrecision,
    TrainedModel,
    quantize_model,
)
from laconic.serve import Engine
from tests.quantize.formats.models import trained_model

pytest.importorskip("onnx", reason="no onnx here to export with")
onnxruntime = pytest.importorskip("onnxruntime", reason="no onnxruntime here to run the export with")


def artifact_of(formats, dense=3, layer="bf16"):
    made = trained_model(rows=(50, 7, 9), dense=dense, dim=10)
    tables = tuple(table.model_copy(update={"bag": False}) for table in made.features.tables)
    trained = TrainedModel(
        made.shape, Features(dense=made.features.dense, tables=tables), made.tables, made.state
    )
    names = trained.features.table_names
    recipe = Recipe(
        tables={name: TablePrecision(format=format) for name, format in zip(names, formats, strict=True)},
        layers=dict.fromkeys(trained.shape.layer_names(), LayerPrecision(kind=layer)),
    )
    return quantize_model(trained, recipe)


@pytest.mark.parametrize("formats", [("fp32", "fp16", "int8"), ("int4", "int2", "int4")])
@pytest.mark.parametrize("dense", [0, 3])
def test_a_graph_gives_the_logits_of_the_engine(tmp_path, formats, dense):
    from laconic.serve.onnx_export import export_onnx

    artifact = artifact_of(formats, dense)
    export_onnx(artifact, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    dense_BF = np.random.default_rng(0).normal(size=(20, dense)).astype(np.float32)
    ids_TB = torch.stack([torch.randint(0, rows, (20,)) for rows in (50, 7, 9)])
    feeds = {"ids": ids_TB.numpy(), **({"dense": dense_BF} if dense else {})}
    expected = Engine(artifact).logits(dense_BF, Lookups.single(ids_TB))
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_exported_is_refused(tmp_path):
    from laconic.serve.onnx_export import export_onnx

    bags = trained_model()
    recipe = Recipe.uniform(bags.features.table_names, bags.shape.layer_names())
    with pytest.raises(ConfigError, match=r"onnx: no bags, got 'c\.0'"):
        export_onnx(quantize_model(bags, recipe), tmp_path / "m.onnx")
