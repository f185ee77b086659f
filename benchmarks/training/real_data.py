"""Real data sets of a folder: every Parquet file whose columns are named by convention.

``label``, ``c_*`` for ids, ``d_*`` for dense counts; a file ``NAME.toml`` beside ``NAME.parquet``
says otherwise.
"""

from __future__ import annotations

from pathlib import Path

from laconic.data import ParquetSettings
from laconic.errors import ConfigError

__all__ = ["real_data_sets"]

_CONVENTION = """label = "label"

[[dense]]
columns = "d_*"
transform = "log1p_standardize"

[[categorical]]
columns = "c_*"

[split]
kind = "random"
fraction = 0.1
"""


def real_data_sets(folder: Path, scratch: Path) -> dict[str, ParquetSettings]:
    """Find the settings of each data set by name; ``scratch`` holds what is written for them."""
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise ConfigError(f"--data: no *.parquet in {str(folder)!r}; it needs columns label, c_* and d_*")
    sets = {}
    for file in files:
        columns = file.with_suffix(".toml")
        if not columns.exists():
            columns = scratch / f"{file.stem}.toml"
            columns.write_text(_CONVENTION)
        sets[file.stem] = ParquetSettings(kind="parquet", path=file.resolve(), columns=columns)
    return sets
