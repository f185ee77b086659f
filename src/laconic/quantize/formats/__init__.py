"""Models in low precision: ``rows`` and ``layers`` in few bits, the ``recipe`` that says which.

Begin with ``artifact``: the folder that ``quantize`` makes of a ``trained_model``.
"""

from laconic.quantize.formats.artifact import Artifact, read_artifact, write_artifact
from laconic.quantize.formats.features import DenseFeature, Features, TableFeature
from laconic.quantize.formats.layers import Observed, observe
from laconic.quantize.formats.quantize import quantize_model
from laconic.quantize.formats.recipe import LayerPrecision, Recipe, TablePrecision
from laconic.quantize.formats.rows import Ranges, RowFormat, dequantize_rows, quantize_rows
from laconic.quantize.formats.trained_model import ModelShape, TrainedModel

__all__ = [
    "Artifact",
    "DenseFeature",
    "Features",
    "LayerPrecision",
    "ModelShape",
    "Observed",
    "Ranges",
    "Recipe",
    "RowFormat",
    "TableFeature",
    "TablePrecision",
    "TrainedModel",
    "dequantize_rows",
    "observe",
    "quantize_model",
    "quantize_rows",
    "read_artifact",
    "write_artifact",
]
