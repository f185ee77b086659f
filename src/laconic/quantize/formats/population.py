"""What the inputs of a model looked like when it was made: histograms that a server compares its requests with.

A feature has one view or more, each with a histogram::

    NAME            values of a dense feature, or ids of a table, by order
    NAME/hash       ids of a table by the upper four bits of their hash, ``data.mix64``
    NAME.lengths    lengths of a table's bags, where it has bags

Bin k counts values from edge k - 1, inclusive, to edge k, exclusive; the first and last bins are open.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import Field, model_validator

from laconic.config import Settings
from laconic.errors import ConfigError
from laconic.quantize.formats.features import Features

__all__ = ["Histogram", "Population"]


class Histogram(Settings):
    """Of one view."""

    edges: tuple[float, ...]
    """Ascending; there is one bin more."""

    counts: tuple[Annotated[int, Field(ge=0, le=2**53)], ...]
    """Values in every bin."""

    @model_validator(mode="after")
    def _check(self) -> Histogram:
        if len(self.counts) != len(self.edges) + 1:
            raise ValueError(f"expected {len(self.edges) + 1} counts, got {len(self.counts)}")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError("expected edges that ascend")
        return self


class Population(Settings):
    """Of all features."""

    views: dict[str, Histogram]
    """By name."""

    unknown: dict[str, Annotated[float, Field(ge=0, le=1)]]
    """Share of unknown ids, by table."""

    def check(self, features: Features) -> None:
        """Raise ``ConfigError`` where these are not the features of a model."""
        expected = {feature.name for feature in features.dense}
        for table in features.tables:
            expected |= {table.name, f"{table.name}/hash"}
            expected |= {f"{table.name}.lengths"} if table.bag else set()
        for what, found, wanted in (
            ("views", set(self.views), expected),
            ("unknown", set(self.unknown), set(features.table_names)),
        ):
            if wrong := sorted(found ^ wanted):
                raise ConfigError(
                    f"population.{what}: {wrong[0]!r} is missing, or of no feature of the model"
                )
