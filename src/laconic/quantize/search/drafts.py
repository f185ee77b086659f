"""Artifacts of one model that differ in some parts: a part is quantized when its choice changes, and only then.

Of every table the bytes of the choice that was asked for last are kept, so all of them take what one artifact takes.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from laconic.quantize.formats import Artifact, Recipe, TableChoice
from laconic.quantize.formats.observe import Observed
from laconic.quantize.formats.quantize import quantize_layers
from laconic.quantize.formats.rows import quantize_rows
from laconic.quantize.formats.trained_model import TrainedModel
from laconic.quantize.search.workbench import Tell
from laconic.serve import Engine

__all__ = ["Drafts"]


class Drafts:
    """What a search tries, up to what it decides for."""

    def __init__(self, trained: TrainedModel, observed: Mapping[str, Observed], tell: Tell) -> None:
        self.trained, self._observed, self._tell = trained, observed, tell
        self._tables: dict[str, tuple[TableChoice, Tensor]] = {}
        self._last: tuple[Recipe, Engine] | None = None

    def artifact(self, recipe: Recipe) -> Artifact:
        """Make the whole model as a recipe says; ``ConfigError`` where one of its formats cannot hold a table."""
        return self.engine(recipe).artifact

    def engine(self, recipe: Recipe) -> Engine:
        """Make what would serve it; that of the same recipe as before is there already."""
        if self._last is None or self._last[0] != recipe:
            self._last = None  # its memory is needed
            self._last = recipe, Engine(self._quantized(recipe))
        return self._last[1]

    def _quantized(self, recipe: Recipe) -> Artifact:
        trained = self.trained
        recipe.check(trained.features.table_names, trained.shape.layer_names())
        changed = [name for name, choice in recipe.tables.items() if not self._has(name, choice)]
        for done, name in enumerate(changed):
            self._tell("quantizing tables", done, len(changed))
            choice = recipe.tables[name]
            self._tables[name] = choice, quantize_rows(trained.tables[name], choice.format, choice.ranges)
        if changed:
            self._tell("quantizing tables", len(changed), len(changed))
        return Artifact(
            shape=trained.shape,
            features=trained.features,
            recipe=recipe,
            tables={name: self._tables[name][1] for name in trained.features.table_names},
            layers=quantize_layers(trained, recipe, self._observed),
            vocabularies=trained.vocabularies,
        )

    def _has(self, name: str, choice: TableChoice) -> bool:
        return name in self._tables and self._tables[name][0] == choice
