"""A recipe: in which precision every table and every layer of a model is served. ::

[tables.c_user]
format = "int4"
ranges = "greedy"

[layers."top.0"]
kind = "int8_dynamic"
equalized = true
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, model_validator

from laconic.config import Settings
from laconic.errors import ConfigError
from laconic.quantize.formats.rows import Ranges, RowFormat

__all__ = ["LayerKind", "LayerPrecision", "Recipe", "TablePrecision"]

LayerKind = Literal["fp32", "bf16", "int8_dynamic", "int8_static"]


class TablePrecision(Settings):
    """How the rows of a table are stored."""

    format: RowFormat = RowFormat.FP32
    """Format of every row."""

    ranges: Ranges = Ranges.MINMAX
    """How the range of a row's codes is chosen; fp32 and fp16 have no codes."""


class LayerPrecision(Settings):
    """How a fully connected layer is stored and computed."""

    kind: LayerKind = "fp32"
    """``bf16``: weights are bfloat16, computed in float32. ``int8_*``: weights are int8, inputs
    uint8 and sums int32; the range of inputs is each sample's (``dynamic``) or from calibration
    (``static``)."""

    equalized: bool = False
    """int8: whether each input is multiplied by ``sqrt(max|W| / max|X|)`` and its weights divided
    by it. So wide inputs hand some of their range over to their weights. Needs calibration."""

    ranges: Literal["minmax", "l2"] = "minmax"
    """``int8_static``: the range of all inputs, or the one of least squared error."""

    @model_validator(mode="before")
    @classmethod
    def _as_written_before(cls, tree: Any) -> Any:
        """Read files of earlier versions: drop ``per_channel``, and accept an older spelling."""
        if not isinstance(tree, dict):
            return tree
        names = {"equalised": "equalized"}
        return {names.get(name, name): tree[name] for name in tree if name != "per_channel"}

    @property
    def calibrated(self) -> bool:
        """Whether inputs of the layer must have been observed."""
        return self.kind == "int8_static" or (self.kind == "int8_dynamic" and self.equalized)


class Recipe(Settings):
    """Precisions of all tables and layers of one model, by name."""

    tables: dict[str, TablePrecision] = Field(default_factory=dict)
    """How each table is stored, by name of its categorical feature."""

    layers: dict[str, LayerPrecision] = Field(default_factory=dict)
    """How each layer is computed, by name of its module in the dense model, as ``top.0``."""

    @classmethod
    def uniform(
        cls,
        tables: Iterable[str],
        layers: Iterable[str],
        *,
        table: TablePrecision | None = None,
        layer: LayerPrecision | None = None,
    ) -> Recipe:
        """Give all tables one precision, and all layers one; the default is fp32."""
        return cls(
            tables={name: table or TablePrecision() for name in tables},
            layers={name: layer or LayerPrecision() for name in layers},
        )

    def check(self, tables: Iterable[str], layers: Iterable[str]) -> None:
        """Raise ``ConfigError`` unless exactly these tables and layers have a precision."""
        for what, chosen, known in (("tables", self.tables, tables), ("layers", self.layers, layers)):
            names = list(known)
            for name in chosen:
                if name not in names:
                    raise ConfigError(f"recipe.{what}: the model has no {name!r} (known: {', '.join(names)})")
            for name in names:
                if name not in chosen:
                    raise ConfigError(f"recipe.{what}: expected a precision for {name!r}, got none")
