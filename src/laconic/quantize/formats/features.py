"""Features of a served model: dense ones, tables, how raw values become both, and their population.

The population is the distribution of the inputs that a model was made for. It is kept as
histograms, with which a server compares its requests. A feature has one view or more, each with a
histogram::

    NAME            values of a dense feature, or ids of a table, by order
    NAME/hash       ids of a table by the upper four bits of their hash, ``data.mix64``
    NAME.lengths    lengths of a table's bags, where it has bags

Bin k counts values from edge k - 1, inclusive, to edge k, exclusive; the first and last bins are
open.

Shape legend: ``L`` values of one table, bag after bag.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from laconic.config import Settings
from laconic.data import Categorical, Schema
from laconic.data.hashing import Texts, hash_texts, mix64
from laconic.data.raw_source import ValueIndex, Values
from laconic.errors import ConfigError

__all__ = [
    "DenseFeature",
    "Features",
    "Histogram",
    "Population",
    "RawIds",
    "TableFeature",
    "check_vocabulary",
]

MIN_HASHED_ROWS = 2  # one bucket, and the row for missing values

_HEXADECIMAL = re.compile(rb"[0-9a-fA-F]*")
_DIGITS = 16


class DenseFeature(Settings):
    """A dense feature: ``(x - mean) / deviation``, of a logarithm or not; 0 where missing."""

    name: str

    log1p: bool = False
    """Whether ``x`` is ``log(1 + max(raw, 0))`` rather than the raw value."""

    mean: float = 0.0
    deviation: float = Field(default=1.0, gt=0)


class TableFeature(Settings):
    """A categorical feature and its embedding table."""

    name: str

    rows: int = Field(ge=1)
    """Number of rows of the table, with the row for unknown ids."""

    bag: bool = False
    """Whether a sample has any number of ids, none included, rather than exactly one."""

    unknown: bool = False
    """Whether the last row is for ids that are not known."""

    raw: Literal["hash", "vocabulary"] | None = None
    """How raw values become ids: by a stable hash modulo ``rows - 1``, or by their place in a
    vocabulary of ``rows - 1`` values. Values that are missing or not known get the last row. None:
    raw values are ids already, or it is not known how they became ids."""

    values: Literal["integer", "text", "hexadecimal"] | None = None
    """Type of raw values; hexadecimal ones are text of up to 16 digits that spells an integer."""

    @model_validator(mode="after")
    def _check(self) -> TableFeature:
        if (self.raw is None) != (self.values is None):
            raise ValueError("give raw and values, or neither")
        if self.raw is not None and not self.unknown:
            raise ValueError("raw values need a row for unknown ones: unknown must be true")
        if self.raw == "hash" and self.rows < MIN_HASHED_ROWS:
            raise ValueError(
                f"raw values that are hashed need at least {MIN_HASHED_ROWS} rows, got {self.rows}"
            )
        return self


class Features(Settings):
    """All features, in the order of the model."""

    raw: Literal["unknown"] | None = None
    """``unknown`` where it is not known how raw dense values become features; they are refused."""

    dense: tuple[DenseFeature, ...] = ()
    tables: tuple[TableFeature, ...] = Field(min_length=1)

    def model_post_init(self, context: object) -> None:
        """Refuse names that occur twice."""
        names = [*(feature.name for feature in self.dense), *self.table_names]
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise ConfigError(f"features: names must differ, got more than one {', '.join(map(repr, twice))}")

    @property
    def table_names(self) -> tuple[str, ...]:
        """Names of all tables, in the order of the model."""
        return tuple(table.name for table in self.tables)

    @property
    def sample_schema(self) -> Schema:
        """The schema by which a source of samples describes the same features."""
        return Schema(
            tuple(feature.name for feature in self.dense),
            tuple(Categorical(table.name, table.rows, bag=table.bag) for table in self.tables),
        )

    def transform(self, raw_BF: NDArray[np.float64]) -> NDArray[np.float32]:
        """Turn raw dense values into features; NaN is a missing value, which becomes 0.

        What exceeds float32 becomes infinite, for the caller to refuse.
        """
        if raw_BF.ndim != 2 or raw_BF.shape[1] != len(self.dense):
            raise ConfigError(
                f"features: expected dense values of shape (samples, {len(self.dense)}), got {raw_BF.shape}"
            )
        out_BF = np.empty(raw_BF.shape, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            for f, feature in enumerate(self.dense):
                x_B = np.asarray(raw_BF[:, f], np.float64)
                if feature.log1p:
                    x_B = np.log1p(np.maximum(x_B, 0.0))
                if feature.mean != 0.0 or feature.deviation != 1.0:
                    x_B = (x_B - feature.mean) / feature.deviation
                out_BF[:, f] = x_B
        out_BF[np.isnan(raw_BF)] = 0.0
        return out_BF


class Histogram(Settings):
    """Histogram of one view's values."""

    edges: tuple[float, ...]
    """Ascending edges between bins; there is one bin more than edges."""

    counts: tuple[Annotated[int, Field(ge=0, le=2**53)], ...]
    """Number of values in every bin."""

    @model_validator(mode="after")
    def _check(self) -> Histogram:
        if len(self.counts) != len(self.edges) + 1:
            raise ValueError(f"expected {len(self.edges) + 1} counts, got {len(self.counts)}")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError("expected edges that ascend")
        return self


class Population(Settings):
    """Histograms of all features."""

    views: dict[str, Histogram]
    """Histograms by name of their view."""

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


class RawIds:
    """Map from raw values of one table to ids; any number of threads may use it."""

    def __init__(self, table: TableFeature, vocabulary: Values | None) -> None:
        """Sort the vocabulary, where the table has one, once for all requests."""
        self._unknown = table.rows - 1
        self._hexadecimal = table.values == "hexadecimal"
        self._index = None if vocabulary is None else ValueIndex(vocabulary)
        self.text = table.values != "integer"
        """Whether values are text rather than integers."""

    def __call__(self, values_L: NDArray[Any]) -> NDArray[np.int64]:
        """Return the ids of integers (int64) or of texts (bytes); masked ones and None are missing.

        ``ConfigError`` for text that should be hexadecimal and is not.
        """
        if self.text:
            missing_L = np.array([value is None for value in values_L], dtype=bool)
            texts = [value or b"" for value in values_L]
            plain: Values = Texts.of(texts)
            if self._hexadecimal:
                missing_L |= np.array([not text for text in texts], dtype=bool)
                plain = _spelled(texts)
        else:
            missing_L = np.ma.getmaskarray(values_L)
            plain = np.ma.getdata(values_L).astype(np.int64)
        if self._index is not None:
            ids_L = self._index.find(plain)
        else:
            words = hash_texts(texts) if isinstance(plain, Texts) else mix64(plain)
            ids_L = (words % np.uint64(self._unknown)).astype(np.int64)
        ids_L[missing_L] = self._unknown
        return ids_L


def check_vocabulary(table: TableFeature, vocabulary: Values | None) -> None:
    """Raise ``ConfigError`` where a table lacks its vocabulary, or has one that does not fit."""
    if (table.raw == "vocabulary") != (vocabulary is not None):
        what = "none" if vocabulary is None else "one"
        raise ConfigError(
            f"table {table.name!r}: expected a vocabulary if raw is 'vocabulary', got {what} for {table.raw!r}"
        )
    if vocabulary is None:
        return
    if isinstance(vocabulary, Texts) != (table.values == "text"):
        kind = "text" if isinstance(vocabulary, Texts) else "integers"
        raise ConfigError(f"table {table.name!r}: expected a vocabulary of {table.values} values, got {kind}")
    if len(vocabulary) != table.rows - 1:
        raise ConfigError(
            f"table {table.name!r}: expected {table.rows - 1} values in its vocabulary, one less than rows, got "
            f"{len(vocabulary)}"
        )


def _spelled(texts: list[bytes]) -> NDArray[np.int64]:
    """Return integers by their hexadecimal digits, as two's complement; 0 for empty text."""
    if max(map(len, texts), default=0) > _DIGITS or not _HEXADECIMAL.fullmatch(b"".join(texts)):
        wrong = (len(text) > _DIGITS or not _HEXADECIMAL.fullmatch(text) for text in texts)
        place = next(place for place, is_wrong in enumerate(wrong) if is_wrong)
        shown = texts[place][:40].decode(errors="replace")
        raise ConfigError(f"value {place}: expected up to {_DIGITS} hexadecimal digits, got {shown!r}")
    return np.array([int(text or b"0", 16) for text in texts], dtype=np.uint64).view(np.int64)
