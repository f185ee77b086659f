"""The settings ``[data]`` of a run, and the source that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from laconic.config import Settings
from laconic.data.source import Source
from laconic.data.synthetic import Synthetic, SyntheticSettings

__all__ = ["DataSettings", "ParquetSettings", "SyntheticSettings", "open_source"]


class ParquetSettings(Settings):
    """Samples from Parquet files."""

    kind: Literal["parquet"]

    path: Path | tuple[Path, ...]
    """A file, a folder of ``*.parquet``, or a list of these; relative to the working directory."""

    columns: Path | None = None
    """TOML file that describes the columns. If it is left out, it is ``schema.toml`` in the folder,
    as ``laconic prepare`` writes it."""

    window_rows: int = Field(default=1 << 20, ge=1)
    """Number of samples, nearly, that are held and shuffled at a time. The order depends on it."""

    seed: int = 0
    """Seed of the order of samples. The split has its own seed, beside the columns."""


DataSettings = Annotated[SyntheticSettings | ParquetSettings, Field(discriminator="kind")]
"""Where samples come from."""


def open_source(settings: SyntheticSettings | ParquetSettings) -> Source:
    """Open the source that the settings describe."""
    if isinstance(settings, SyntheticSettings):
        return Synthetic(settings)
    from laconic.data.columns import load_columns  # noqa: PLC0415 - pyarrow is an optional dependency
    from laconic.data.parquet import Parquet  # noqa: PLC0415

    paths = settings.path if isinstance(settings.path, tuple) else (settings.path,)
    columns = load_columns(settings.columns or paths[0] / "schema.toml")
    return Parquet(paths, columns, seed=settings.seed, window_rows=settings.window_rows)
