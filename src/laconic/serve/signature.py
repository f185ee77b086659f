"""What a model takes and returns, in the words of the Open Inference Protocol.

::

    dense            FP32   [B, F]     as the model was trained on; left out where it has no dense features; or instead
    raw              FP32   [B, F]     before the transformation that the artefact stores; NaN is a missing value
    NAME             INT64  [B]        one id for each sample
                            [B, k]     k ids for each sample, of a table with bags
                            [L]        ids of all samples, one bag after the other, with
    NAME.lengths     INT32  [B]        the length of every bag; their sum is L

    probability      FP32   [B]

Shape legend: ``B`` samples, ``F`` dense features, ``L`` ids of one table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.data import Schema
from laconic.errors import ConfigError

__all__ = ["DENSE", "LENGTHS", "OUTPUT", "RAW", "Signature"]

DENSE = "dense"
RAW = "raw"
LENGTHS = ".lengths"
OUTPUT = "probability"


@dataclass(frozen=True, slots=True)
class Signature:
    """Features of a model, and which row stands for ids that it does not know."""

    schema: Schema

    unknown: tuple[int | None, ...]
    """For every table, the row that ids outside of it are mapped to; None refuses them."""

    transform: Callable[[NDArray[np.float64]], NDArray[np.float32]] | None = None
    """Turns raw dense values, NaN where missing, into what the model was trained on; None: there is no ``raw``."""

    def __post_init__(self) -> None:
        names = {feature.name for feature in self.schema.categorical}
        taken = {DENSE, RAW} | {name + LENGTHS for name in names}
        if clash := sorted(names & taken):
            raise ConfigError(
                f"signature: a table can not be called {clash[0]!r}, that is another input's name; rename it"
            )
        if len(self.unknown) != self.schema.tables:
            raise ConfigError(
                f"signature: expected an unknown row or None for {self.schema.tables} tables, got {len(self.unknown)}"
            )
        for feature, row in zip(self.schema.categorical, self.unknown, strict=True):
            if row is not None and not 0 <= row < feature.rows:
                raise ConfigError(
                    f"signature: {feature.name!r}: expected an unknown row in [0, {feature.rows}), got {row}"
                )

    @classmethod
    def strict(cls, schema: Schema) -> Signature:
        """Refuse what the model does not know."""
        return cls(schema, (None,) * schema.tables)

    def inputs(self) -> list[dict[str, Any]]:
        """Metadata of all inputs; -1 is any size."""
        described: list[dict[str, Any]] = []
        if self.schema.dense:
            described.append({"name": DENSE, "datatype": "FP32", "shape": [-1, len(self.schema.dense)]})
        for feature in self.schema.categorical:
            described.append({"name": feature.name, "datatype": "INT64", "shape": [-1]})
            if feature.bag:
                described.append({"name": feature.name + LENGTHS, "datatype": "INT32", "shape": [-1]})
        return described

    def outputs(self) -> list[dict[str, Any]]:
        """Metadata of the one output."""
        return [{"name": OUTPUT, "datatype": "FP32", "shape": [-1]}]
