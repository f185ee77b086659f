"""Which columns of a table are the label, dense and categorical features: a small TOML file. ::

    label = "clicked"

    [[dense]]
    columns = "d_*"               # a name or a pattern; the first entry that matches gets a column
    transform = "log1p"

    [[categorical]]
    columns = "site"
    buckets = 100000              # hashed; or vocabulary = "site.txt"; or numbers are ids already

    [[categorical]]
    columns = "c_*"

    [split]
    kind = "random"
    fraction = 0.1

Every table has one row more than it has known ids. Nulls, negative numbers and unknown values are
looked up in that last row.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from laconic.config import Settings, load
from laconic.errors import ConfigError

__all__ = [
    "PREPARED",
    "CategoricalColumns",
    "ColumnSettings",
    "DenseColumns",
    "PreparedNumbers",
    "PreparedValues",
    "RandomSplit",
    "TimeSplit",
    "load_columns",
]

PREPARED = "    # and one more, the last, for what is unknown"
"""Comment in every ``schema.toml`` that ``laconic prepare`` writes, and in no other file."""


class Columns(Settings):
    """One or more columns that are treated alike."""

    columns: str
    """Name of a column, or a pattern with ``*`` and ``?``."""


class PreparedNumbers(Settings):
    """What ``laconic prepare`` did to raw numbers.

    It took the logarithm or not, and then ``(x - mean) / deviation``.
    """

    log1p: bool = False
    mean: float = 0.0
    deviation: float = Field(default=1.0, gt=0)


class PreparedValues(Settings):
    """How ``laconic prepare`` turned raw values into ids.

    Values without buckets and vocabulary were ids already.
    """

    values: Literal["integer", "text", "hexadecimal"]
    """Type of the raw values; hexadecimal ones are text that spells an integer."""

    buckets: int | None = Field(default=None, ge=1)
    """Number of rows that values were hashed into."""

    vocabulary: Path | None = None
    """File of the known values, relative to this one."""


class DenseColumns(Columns):
    """Numbers. Null, NaN and infinite values become 0 after the transform, and are counted."""

    transform: Literal["none", "log1p", "standardize", "log1p_standardize"] = "none"
    """``log1p`` is log(1 + max(x, 0)). ``standardize`` subtracts the mean and divides by the
    deviation, both over the finite values of all files, which takes one more scan of the column."""

    prepared: PreparedNumbers | None = None
    """Transform that ``laconic prepare`` applied to raw numbers before it wrote the file."""


class CategoricalColumns(Columns):
    """Ids, or values that become ids: numbers of known rows, or anything hashed or listed."""

    rows: int | None = Field(default=None, ge=0)
    """Number of known ids, which are 0 .. rows - 1; 0 means that all are unknown. If it is left
    out, the largest id in the files determines it."""

    buckets: int | None = Field(default=None, ge=1)
    """Hash values (integers or text) into this many rows."""

    vocabulary: Path | None = None
    """File of the known values, relative to this one: text with one value per line, or Parquet with
    a column ``value``. The first value has id 0."""

    prepared: PreparedValues | None = None
    """How ``laconic prepare`` turned raw values into these ids before it wrote the file."""

    @model_validator(mode="after")
    def _one_way_only(self) -> CategoricalColumns:
        given = [name for name in ("rows", "buckets", "vocabulary") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"give one of rows, buckets and vocabulary, got {' and '.join(given)}")
        return self


class RandomSplit(Settings):
    """Each row is drawn by a hash of its number."""

    kind: Literal["random"] = "random"

    fraction: float = Field(default=0.1, ge=0, le=1)
    """Share of rows for evaluation."""

    seed: int = 0
    """Another seed draws other rows."""


class TimeSplit(Settings):
    """The latest rows are for evaluation."""

    kind: Literal["time"]

    fraction: float = Field(default=0.1, ge=0, le=1)
    """Share of rows for evaluation; rows as late as the earliest of them go with it."""

    column: str | None = None
    """Integer or timestamp column that tells the time. If it is left out, rows must be in the order
    of time already."""


class ColumnSettings(Settings):
    """What to read from a table, and which rows to evaluate on."""

    label: str
    """Column of labels: 0 and 1, or booleans."""

    dense: tuple[DenseColumns, ...] = ()
    """Dense features, in the order in which samples hold them."""

    categorical: tuple[CategoricalColumns, ...] = Field(min_length=1)
    """Categorical features, in the order of their tables. A column of lists holds bags, and a null
    is an empty bag."""

    split: Annotated[RandomSplit | TimeSplit, Field(discriminator="kind")] = RandomSplit()
    """Which rows are for evaluation."""

    raw: bool = True
    """Whether the files hold raw values, or ``prepared`` says how they were transformed. If neither
    is the case, served models take no raw values."""

    def expanded(self, names: Sequence[str], *, where: str) -> ColumnSettings:
        """Put a column's name for every pattern; ``names`` are the columns that exist."""
        time = getattr(self.split, "column", None)
        for name in (self.label, time):
            if name is not None and name not in names:
                raise ConfigError(f"{where}: no column {name!r} (known: {', '.join(names)})")
        taken = {self.label, time}
        plain = {entry.columns for entry in (*self.dense, *self.categorical)} & set(names)
        found: dict[str, list[Columns]] = {"dense": [], "categorical": []}
        groups: dict[str, tuple[Columns, ...]] = {"dense": self.dense, "categorical": self.categorical}
        for kind, entries in groups.items():
            for entry in entries:
                matching = _matching(entry.columns, names, taken, plain, where)
                taken.update(matching)
                found[kind] += [entry.model_copy(update={"columns": name}) for name in matching]
        return self.model_copy(update={kind: tuple(columns) for kind, columns in found.items()})


def _matching(
    pattern: str, names: Sequence[str], taken: set[str | None], plain: set[str], where: str
) -> list[str]:
    if pattern in names:
        columns = [pattern]
    else:
        columns = [name for name in names if fnmatchcase(name, pattern) and name not in plain | taken]
    if not columns or pattern in taken:
        why = "is used twice" if pattern in taken else "matches no column that is left"
        raise ConfigError(f"{where}: {pattern!r} {why} (columns: {', '.join(names)})")
    return columns


def load_columns(path: Path) -> ColumnSettings:
    """Read a TOML file; a vocabulary is looked for beside it."""
    settings = load(path, ColumnSettings)
    found = []
    for entry in settings.categorical:
        update: dict[str, object] = {"vocabulary": entry.vocabulary and path.parent / entry.vocabulary}
        if entry.prepared is not None and entry.prepared.vocabulary is not None:
            file = path.parent / entry.prepared.vocabulary
            update["prepared"] = entry.prepared.model_copy(update={"vocabulary": file})
        found.append(entry.model_copy(update=update))
    return settings.model_copy(
        update={"categorical": tuple(found), "raw": settings.raw and not _unrecorded(settings, path)}
    )


def _unrecorded(settings: ColumnSettings, path: Path) -> bool:
    """Whether an early ``laconic prepare`` wrote this file, which did not record its transforms."""
    recorded = any(entry.prepared is not None for entry in settings.categorical)
    return not recorded and PREPARED in path.read_text(encoding="utf-8")
