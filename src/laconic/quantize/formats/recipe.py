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
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from laconic.config import Settings, load, parse
from laconic.errors import ConfigError
from laconic.quantize.formats.rows import Ranges, RowFormat

__all__ = ["LayerChoice", "LayerKind", "Recipe", "TableChoice"]

LayerKind = Literal["fp32", "bf16", "int8_dynamic", "int8_static"]


class TableChoice(Settings):
    """How the rows of a table are stored."""

    format: RowFormat = RowFormat.FP32
    """What a row becomes."""

    ranges: Ranges = Ranges.MINMAX
    """How the range of a row's codes is chosen; of no meaning for fp32 and fp16."""


class LayerChoice(Settings):
    """How a fully connected layer is stored and computed."""

    kind: LayerKind = "fp32"
    """``bf16``: weights in bfloat16, computed in float32. ``int8_*``: weights int8, inputs uint8 and sums int32;
    the range of the inputs is that of each sample (``dynamic``), or one for all from calibration (``static``)."""

    equalized: bool = False
    """int8: inputs of wide range hand some of it over to their weights, ``S = sqrt(max|W| / max|X|)`` for each;
    needs calibration."""

    ranges: Literal["minmax", "l2"] = "minmax"
    """``int8_static``: from the smallest input to the largest, or the range of least squared error."""

    @model_validator(mode="before")
    @classmethod
    def _as_written_before(cls, tree: Any) -> Any:
        """Read files from before: whether outputs share a scale is seen in the scales; one name had another spelling."""
        if not isinstance(tree, dict):
            return tree
        names = {"equalised": "equalized"}
        return {names.get(name, name): tree[name] for name in tree if name != "per_channel"}

    @property
    def calibrated(self) -> bool:
        """Whether inputs of the layer must have been observed."""
        return self.kind == "int8_static" or (self.kind == "int8_dynamic" and self.equalized)


class Recipe(Settings):
    """Choices for all tables and layers of one model, by name."""

    tables: dict[str, TableChoice] = Field(default_factory=dict)
    """How each table is stored, by name of its categorical feature."""

    layers: dict[str, LayerChoice] = Field(default_factory=dict)
    """How each layer is computed, by name of its module in the dense part, as ``top.0``."""

    @classmethod
    def uniform(
        cls,
        tables: Iterable[str],
        layers: Iterable[str],
        *,
        table: TableChoice | None = None,
        layer: LayerChoice | None = None,
    ) -> Recipe:
        """Choose the same for all tables, and for all layers; left out: fp32."""
        return cls(
            tables={name: table or TableChoice() for name in tables},
            layers={name: layer or LayerChoice() for name in layers},
        )

    def check(self, tables: Iterable[str], layers: Iterable[str]) -> None:
        """Raise ``ConfigError`` unless every table and layer has its choice, and nothing else has."""
        for what, chosen, known in (("tables", self.tables, tables), ("layers", self.layers, layers)):
            names = list(known)
            for name in chosen:
                if name not in names:
                    raise ConfigError(f"recipe.{what}: the model has no {name!r} (known: {', '.join(names)})")
            for name in names:
                if name not in chosen:
                    raise ConfigError(f"recipe.{what}: expected a choice for {name!r}, got none")

    @classmethod
    def parse(cls, text: str, *, where: str = "recipe") -> Recipe:
        """Read TOML text; ``ConfigError`` for each problem."""
        return parse(text, cls, where=where)

    @classmethod
    def load(cls, path: str | Path) -> Recipe:
        """Read a TOML file."""
        return load(path, cls)
