"""What a table can be stored as, and what a layer can be computed in.

Every table and every layer is a *part* of the model, with fp32 as its first candidate. Of the choices that recipes
know, one scale for all outputs of a layer is left out: one for each takes the same bytes and the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from laconic.quantize.formats.recipe import LayerChoice, Recipe, TableChoice
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
    TableChoice(),
    TableChoice(format=RowFormat.FP16),
    TableChoice(format=RowFormat.INT8),
    *(
        TableChoice(format=format, ranges=ranges)
        for format in (RowFormat.INT4, RowFormat.INT2)
        for ranges in (Ranges.MINMAX, Ranges.GREEDY, Ranges.L2)
    ),
)

LAYER_CANDIDATES = (
    LayerChoice(),
    LayerChoice(kind="bf16"),
    LayerChoice(kind="int8_dynamic"),
    LayerChoice(kind="int8_dynamic", equalized=True),
    LayerChoice(kind="int8_static"),
    LayerChoice(kind="int8_static", ranges="l2"),
    LayerChoice(kind="int8_static", ranges="l2", equalized=True),
)


@dataclass(frozen=True, slots=True)
class ModelPart:
    """A table or a layer."""

    kind: Literal["table", "layer"]
    name: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """One choice for one part."""

    part: ModelPart
    choice: TableChoice | LayerChoice

    @property
    def label(self) -> str:
        """Name that no other candidate of the part has."""
        return described(self.choice)


def candidates(tables: tuple[str, ...], layers: tuple[str, ...]) -> list[Candidate]:
    """All of a model, tables first; those of a part stand together, fp32 first."""
    found = [Candidate(ModelPart("table", name), choice) for name in tables for choice in TABLE_CANDIDATES]
    return found + [
        Candidate(ModelPart("layer", name), choice) for name in layers for choice in LAYER_CANDIDATES
    ]


def described(choice: TableChoice | LayerChoice) -> str:
    """Name a choice in a few words: ``int4 greedy``, ``int8 static l2 equalized``."""
    if isinstance(choice, TableChoice):
        searched = choice.format in (RowFormat.INT8, RowFormat.INT4, RowFormat.INT2)
        return f"{choice.format} {choice.ranges}" if searched else str(choice.format)
    words = choice.kind.split("_")
    if choice.kind == "int8_static":
        words.append(choice.ranges)
    if choice.kind.startswith("int8"):
        words += ["equalized"] * choice.equalized
    return " ".join(words)


def recipe_of(chosen: list[Candidate]) -> Recipe:
    """Make the recipe that gives every part its candidate."""
    return Recipe(
        tables={c.part.name: c.choice for c in chosen if isinstance(c.choice, TableChoice)},
        layers={c.part.name: c.choice for c in chosen if isinstance(c.choice, LayerChoice)},
    )
