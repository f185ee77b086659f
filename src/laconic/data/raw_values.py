"""How raw values become samples, according to the description of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from laconic.data.columns import CategoricalColumns, ColumnSettings
from laconic.data.dense import Dense
from laconic.data.raw_source import Kind, RawCategories, RawValues
from laconic.data.sample_decoder import is_bag
from laconic.data.vocabulary import Hashed, IdMap, Known, Vocabulary, read_vocabulary
from laconic.errors import ConfigError

__all__ = ["kind_of_values", "raw_values"]


def raw_values(
    columns: ColumnSettings, dense: Sequence[Dense], maps: Mapping[str, IdMap], schema: Any
) -> RawValues:
    """Combine recorded transforms with the columns' own; reads vocabularies of prepared columns."""
    if not columns.raw:
        return RawValues(None, {})
    transforms = []
    for entry, own in zip(columns.dense, dense, strict=True):
        if entry.prepared is None:
            transforms.append(own)
        elif entry.transform == "none":
            transforms.append(Dense(entry.columns, **entry.prepared.model_dump()))
    # two transforms one after the other cannot be written as one
    known = len(transforms) == len(dense)
    categories = {
        entry.columns: found
        for entry in columns.categorical
        if (found := _categories(entry, maps[entry.columns], schema)) is not None
    }
    return RawValues(tuple(transforms) if known else None, categories)


def kind_of_values(schema: Any, name: str) -> Kind:
    """Return whether a column, or the lists in it, hold text or integers."""
    kind = schema.field(name).type
    kind = kind.value_type if is_bag(kind) else kind
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else "integer"


def _categories(entry: CategoricalColumns, ids: IdMap, schema: Any) -> RawCategories | None:
    before = entry.prepared
    if before is None:
        kind = kind_of_values(schema, entry.columns)
        if isinstance(ids, Hashed):
            return RawCategories(kind, None)
        return RawCategories(kind, ids.values) if isinstance(ids, Vocabulary) else None
    if not isinstance(ids, Known):
        return None
    vocabulary = None
    if before.vocabulary is not None:
        vocabulary = read_vocabulary(before.vocabulary, text=before.values == "text").values
    elif before.buckets is None:
        return None
    known = before.buckets if vocabulary is None else len(vocabulary)
    if known != ids.rows - 1:
        raise ConfigError(
            f"{entry.columns!r}: expected {ids.rows - 1} values in {before.vocabulary or 'buckets'}, as there are rows, "
            f"got {known}; prepare the data again"
        )
    return RawCategories(before.values, vocabulary)
