"""The settings ``[data]`` of a run, and the source that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from laconic.config import Settings
from laconic.data.source import Source
from laconic.data.synthetic import Synthetic, SyntheticSettings
from laconic.errors import ConfigError

__all__ = ["DataSettings", "ParquetSettings", "SyntheticSettings", "open_source"]


class ParquetSettings(Settings):
    """Samples from Parquet files."""

    kind: Literal["parquet"]

    path: str | Path | tuple[str | Path, ...]
    """A file, a folder of ``*.parquet``, a pattern such as ``days/2026-1*.parquet``, a URI of one
    of these, such as ``s3://bucket/days``, or a list; relative to the working directory."""

    columns: Path | None = None
    """TOML file that describes the columns. If it is left out, it is ``schema.toml`` in the folder,
    as ``laconic prepare`` writes it."""

    streams: int = Field(default=64, ge=1)
    """Number of streams that an epoch is divided into, at least, from which every batch is taken.
    All numbers of ranks that divide it train on the same batches."""

    held_rows: int = Field(default=1 << 22, ge=1)
    """Number of samples, nearly, that all ranks hold together; a row group for each stream. Where
    row groups are so large that these would be more, there are fewer streams."""

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
    columns = load_columns(settings.columns or _own_columns(paths[0]))
    return Parquet(paths, columns, seed=settings.seed, streams=settings.streams, held_rows=settings.held_rows)


def _own_columns(path: str | Path) -> Path:
    """Return the file that describes the columns of a folder."""
    if "://" in str(path) or not Path(path).is_dir():
        raise ConfigError(
            f"data.columns: expected the TOML file that describes the columns of {str(path)!r}, got none; "
            "only a folder on this machine may have its own, schema.toml"
        )
    return Path(path) / "schema.toml"
