"""What a served model is asked with: dense features and how raw values become them, tables and their rows."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from laconic.config import Settings
from laconic.errors import ConfigError

__all__ = ["DenseFeature", "Features", "TableFeature"]

MIN_HASHED_ROWS = 2  # one bucket, and the row for missing values


class DenseFeature(Settings):
    """A number: a logarithm or not, then ``(x - mean) / deviation``; 0 where it is missing."""

    name: str

    log1p: bool = False
    """``log(1 + max(x, 0))`` first."""

    mean: float = 0.0
    deviation: float = Field(default=1.0, gt=0)


class TableFeature(Settings):
    """A categorical feature and its embedding table."""

    name: str

    rows: int = Field(ge=1)
    """Rows of the table, that of unknown ids included."""

    bag: bool = False
    """Whether a sample has any number of ids, none included, rather than exactly one."""

    unknown: bool = False
    """Whether the last row is for ids that are not known."""

    raw: Literal["hash", "vocabulary"] | None = None
    """How raw values become ids: by a stable hash modulo ``rows - 1``, or by their place in a vocabulary of so many
    values; what is missing or not known goes to the last row. None: raw values are ids, or not known."""

    values: Literal["integer", "text", "hexadecimal"] | None = None
    """What raw values are; hexadecimal ones are text of up to 16 digits that spells an integer."""

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
    """``unknown`` where nobody wrote down how raw dense values become features: they are refused then."""

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
        """Of all tables."""
        return tuple(table.name for table in self.tables)

    def transform(self, raw_BF: NDArray[np.float64]) -> NDArray[np.float32]:
        """Turn raw dense values into what the model was trained on; NaN is a missing value, 0 afterwards.

        What is beyond float32 then stays infinite, for the caller to refuse.
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
