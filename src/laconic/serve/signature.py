"""What a model takes and returns, in the words of the Open Inference Protocol.

::

    dense            FP32   [B, F]     as the model was trained on; left out where it has no dense features; or instead
    raw              FP64   [B, F]     before the transformation that the artifact stores; NaN is a missing value
    NAME             INT64  [B]        one id for each sample
                            [B, k]     k ids for each sample, of a table with bags
                            [L]        ids of all samples, one bag after the other, with
    NAME.lengths     INT32  [B]        the length of every bag; their sum is L
    NAME.raw         BYTES, or INT64   instead of NAME: raw values, which the artifact's vocabulary or hash makes ids of

    probability      FP32   [B]

Shape legend: ``B`` samples, ``F`` dense features, ``L`` ids of one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from laconic.data import Schema
from laconic.errors import ConfigError
from laconic.quantize.formats import Features
from laconic.quantize.formats.features import RawIds

__all__ = ["DENSE", "LENGTHS", "OUTPUT", "RAW", "RAW_VALUES", "Signature"]

DENSE = "dense"
RAW = "raw"
LENGTHS = ".lengths"
RAW_VALUES = ".raw"
OUTPUT = "probability"


@dataclass(frozen=True, slots=True)
class Signature:
    """Features of a model, and which row stands for ids that it does not know."""

    schema: Schema

    unknown: tuple[int | None, ...]
    """For every table, the row that ids outside of it are mapped to; None refuses them."""

    raw: Features | None = None
    """Features that know how raw dense values become what the model was trained on; None: there is no ``raw``."""

    raw_ids: Mapping[str, RawIds] = field(default_factory=dict)
    """By table, what makes ids of raw values; a table that is not here has no ``NAME.raw``."""

    def __post_init__(self) -> None:
        names = {feature.name for feature in self.schema.categorical}
        taken = (
            {DENSE, RAW} | {name + LENGTHS for name in names} | {name + RAW_VALUES for name in self.raw_ids}
        )
        if clash := sorted(names & taken):
            raise ConfigError(
                f"signature: a table cannot be called {clash[0]!r}, that is another input's name; rename it"
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

    def inputs(self) -> list[dict[str, Any]]:
        """Metadata of all inputs; -1 is any size."""
        described: list[dict[str, Any]] = []
        if self.schema.dense:
            shape = [-1, len(self.schema.dense)]
            described.append({"name": DENSE, "datatype": "FP32", "shape": shape})
            if self.raw is not None:
                described.append({"name": RAW, "datatype": "FP64", "shape": shape, **_instead_of(DENSE)})
        for feature in self.schema.categorical:
            described.append({"name": feature.name, "datatype": "INT64", "shape": [-1]})
            if (ids := self.raw_ids.get(feature.name)) is not None:
                kind = "BYTES" if ids.text else "INT64"
                described.append(
                    {
                        "name": feature.name + RAW_VALUES,
                        "datatype": kind,
                        "shape": [-1],
                        **_instead_of(feature.name),
                    }
                )
            if feature.bag:
                described.append({"name": feature.name + LENGTHS, "datatype": "INT32", "shape": [-1]})
        return described

    def outputs(self) -> list[dict[str, Any]]:
        """Metadata of the one output."""
        return [{"name": OUTPUT, "datatype": "FP32", "shape": [-1]}]


def _instead_of(name: str) -> dict[str, Any]:
    return {"parameters": {"instead_of": name}}
