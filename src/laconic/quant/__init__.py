"""Models in low precision: rows and layers in few bits, recipes, artefacts."""

from laconic.quant.artefact import Artefact, read_artefact, write_artefact
from laconic.quant.features import DenseFeature, Features, TableFeature
from laconic.quant.model_shape import ModelShape
from laconic.quant.observe import Observed, observe
from laconic.quant.quantize import quantize_model
from laconic.quant.recipe import LayerChoice, Recipe, TableChoice
from laconic.quant.rows import Ranges, RowFormat, dequantize_rows, quantize_rows
from laconic.quant.trained_model import TrainedModel

__all__ = [
    "Artefact",
    "DenseFeature",
    "Features",
    "LayerChoice",
    "ModelShape",
    "Observed",
    "Ranges",
    "Recipe",
    "RowFormat",
    "TableChoice",
    "TableFeature",
    "TrainedModel",
    "dequantize_rows",
    "observe",
    "quantize_model",
    "quantize_rows",
    "read_artefact",
    "write_artefact",
]
