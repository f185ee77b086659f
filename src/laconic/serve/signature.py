"""The signature of a model: what it takes and returns, by the Open Inference Protocol.

::

    dense          FP32   [B, F]    features as the model was trained on
    raw            FP64   [B, F]    instead of dense: before the artifact's transformation
    NAME           INT64  [B]       one id for each sample
                          [B, k]    k ids for each sample, of a table with bags
                          [L]       ids of all samples, one bag after the other, with
    NAME.lengths   INT32  [B]       the length of every bag; their sum is L
    NAME.raw       BYTES, INT64     instead of NAME: raw values

    probability    FP32   [B]

A model without dense features takes neither ``dense`` nor ``raw``. NaN in ``raw`` is a missing
value. The artifact's vocabulary or hash makes ids of ``NAME.raw``.

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
    """Features of a model, and the rows that stand for ids which it does not know."""

    schema: Schema

    unknown: tuple[int | None, ...]
    """For every table, the row that ids outside of it are mapped to; None refuses them."""

    raw: Features | None = None
    """Features that say how raw dense values are transformed; None: there is no input ``raw``."""

    raw_ids: Mapping[str, RawIds] = field(default_factory=dict)
    """Maps from raw values to ids, by table; a table without one has no ``NAME.raw``."""

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
        """Return the metadata of all inputs; -1 is any size."""
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
        """Return the metadata of the one output."""
        return [{"name": OUTPUT, "datatype": "FP32", "shape": [-1]}]


def _instead_of(name: str) -> dict[str, Any]:
    return {"parameters": {"instead_of": name}}
