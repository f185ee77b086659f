"""Candidates: the precisions that a search considers for every table and layer.

Every table and every layer is a *part* of the model. The first candidate of a part is fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from laconic.quantize.formats.recipe import LayerPrecision, Recipe, TablePrecision
from laconic.quantize.formats.rows import Ranges, RowFormat

__all__ = [
    "LAYER_CANDIDATES",
    "TABLE_CANDIDATES",
    "Candidate",
    "ModelPart",
    "candidates",
    "described",
    "recipe_of",
]

TABLE_CANDIDATES = (
    TablePrecision(),
    TablePrecision(format=RowFormat.FP16),
    TablePrecision(format=RowFormat.INT8),
    *(
        TablePrecision(format=format, ranges=ranges)
        for format in (RowFormat.INT4, RowFormat.INT2)
        for ranges in (Ranges.MINMAX, Ranges.GREEDY, Ranges.L2)
    ),
)

LAYER_CANDIDATES = (
    LayerPrecision(),
    LayerPrecision(kind="bf16"),
    LayerPrecision(kind="int8_dynamic"),
    LayerPrecision(kind="int8_dynamic", equalized=True),
    LayerPrecision(kind="int8_static"),
    LayerPrecision(kind="int8_static", ranges="l2"),
    LayerPrecision(kind="int8_static", ranges="l2", equalized=True),
)


@dataclass(frozen=True, slots=True)
class ModelPart:
    """A table or a layer."""

    kind: Literal["table", "layer"]
    name: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A precision that a part could get."""

    part: ModelPart
    precision: TablePrecision | LayerPrecision

    @property
    def label(self) -> str:
        """Name of the precision, which no other candidate of the part has."""
        return described(self.precision)


def candidates(tables: tuple[str, ...], layers: tuple[str, ...]) -> list[Candidate]:
    """Return all candidates of a model, tables first; those of a part stand together."""
    found = [
        Candidate(ModelPart("table", name), precision) for name in tables for precision in TABLE_CANDIDATES
    ]
    return found + [
        Candidate(ModelPart("layer", name), precision) for name in layers for precision in LAYER_CANDIDATES
    ]


def described(precision: TablePrecision | LayerPrecision) -> str:
    """Describe a precision in a few words: ``int4 greedy``, ``int8 static l2 equalized``."""
    if isinstance(precision, TablePrecision):
        searched = precision.format in (RowFormat.INT8, RowFormat.INT4, RowFormat.INT2)
        return f"{precision.format} {precision.ranges}" if searched else str(precision.format)
    words = precision.kind.split("_")
    if precision.kind == "int8_static":
        words.append(precision.ranges)
    if precision.kind.startswith("int8"):
        words += ["equalized"] * precision.equalized
    return " ".join(words)


def recipe_of(chosen: list[Candidate]) -> Recipe:
    """Make the recipe that gives every part its candidate."""
    return Recipe(
        tables={c.part.name: c.precision for c in chosen if isinstance(c.precision, TablePrecision)},
        layers={c.part.name: c.precision for c in chosen if isinstance(c.precision, LayerPrecision)},
    )
