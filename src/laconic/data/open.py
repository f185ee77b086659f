"""The settings of data, and the source that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from laconic.config import Settings
from laconic.data.source import Source
from laconic.data.synthetic import TERABYTE_ROWS, Synthetic

__all__ = ["DataSettings", "ParquetSettings", "SyntheticSettings", "open_source"]


class SyntheticSettings(Settings):
    """Generated samples, shaped like Criteo's, with labels from a planted model (Bayes AUC near 0.80)."""

    kind: Literal["synthetic"]

    rows: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=TERABYTE_ROWS, min_length=1)
    """Rows of each table; left out: those of Criteo Terabyte."""

    cap: int | None = Field(default=1_000_000, ge=1)
    """Tables larger than this are cut to it."""

    bags: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    """Most ids of a sample, for each table: 1 is exactly one, n > 1 is a bag of 0 to n."""

    dense: int = Field(default=13, ge=0)
    """Dense features."""

    zipf: float = Field(default=1.05, ge=0)
    """Skew of lookups: row k is looked up in proportion to (k + 1) ** -zipf; 0 is uniform."""

    samples: int = Field(default=1 << 20, ge=0)
    """Samples of a training epoch."""

    eval_samples: int = Field(default=1 << 16, ge=0)
    """Samples to evaluate on."""

    seed: int = 0
    """Of samples, labels and their order."""


class ParquetSettings(Settings):
    """Samples from Parquet files."""

    kind: Literal["parquet"]

    path: Path | tuple[Path, ...]
    """A file, a folder of ``*.parquet``, or a list of these; relative to the working directory."""

    columns: Path | None = None
    """TOML file that says what the columns are; left out: ``schema.toml`` in the folder, as prepared."""

    window_rows: int = Field(default=1 << 20, ge=1)
    """About how many samples are held and shuffled at a time; part of what defines the order."""

    seed: int = 0
    """Of the order of samples. The split has a seed of its own, with the columns."""


DataSettings = Annotated[SyntheticSettings | ParquetSettings, Field(discriminator="kind")]
"""Where samples come from."""


def open_source(settings: SyntheticSettings | ParquetSettings) -> Source:
    """Open what the settings describe."""
    if isinstance(settings, SyntheticSettings):
        return Synthetic(**settings.model_dump(exclude={"kind"}))
    from laconic.data.columns import load_columns  # noqa: PLC0415 - pyarrow is an optional dependency
    from laconic.data.parquet import Parquet  # noqa: PLC0415

    paths = settings.path if isinstance(settings.path, tuple) else (settings.path,)
    columns = load_columns(settings.columns or paths[0] / "schema.toml")
    return Parquet(paths, columns, seed=settings.seed, window_rows=settings.window_rows)
