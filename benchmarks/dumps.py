"""Embedding dumps: files ``NAME_ROWSxDIM.f32``, raw little-endian float32, row-major."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.case import Case, distinct_rows, relative_case
from laconic.errors import ConfigError

PAPER_BOUNDS = {"tb_table1": 0.03, "tb_table5": 0.05, "kaggle_table5": 0.03}
"""What the SC'24 authors used for the dumps they published, relative to the range."""

OTHER_BOUNDS = (0.01, 0.03, 0.05)
"""Their small, medium and large bound, for everybody else's dumps."""

_NAME = re.compile(r"(?P<name>.+)_(?P<rows>\d+)x(?P<dim>\d+)\.f32")


@dataclass(frozen=True, slots=True)
class Dump:
    """A file whose name and size agree; its values are not read yet."""

    path: Path
    name: str
    rows: int
    dim: int

    @property
    def bounds(self) -> tuple[float, ...]:
        """Bounds to measure it at, relative to its range."""
        return (PAPER_BOUNDS[self.name],) if self.name in PAPER_BOUNDS else OTHER_BOUNDS

    def cases(self) -> list[Case]:
        """Read it: at every bound, the whole dump and its distinct rows."""
        values_RD = self.read()
        whole = [relative_case(self.name, values_RD, bound) for bound in self.bounds]
        return [case for one in whole for case in (one, distinct_rows(one))]

    def read(self) -> Tensor:
        """Values; ``ConfigError`` if one is not finite, which most peers cannot encode."""
        values_RD = (
            np.fromfile(self.path, dtype="<f4").astype(np.float32, copy=False).reshape(self.rows, self.dim)
        )
        if not np.isfinite(values_RD).all():
            row, column = np.argwhere(~np.isfinite(values_RD))[0]
            raise ConfigError(
                f"{self.path}: expected finite values, got {values_RD[row, column]!s} at row {row}, "
                f"column {column}; dump it without such rows"
            )
        return torch.from_numpy(values_RD)


def find_dumps(folder: Path) -> list[Dump]:
    """List the dumps of a folder by name; ``ConfigError`` if it has none, or one that is not what it says."""
    if not folder.is_dir():
        raise ConfigError(f"data: expected a folder of NAME_ROWSxDIM.f32 files, got {str(folder)!r}")
    dumps = [parse_dump(path) for path in sorted(folder.glob("*.f32"))]
    if not dumps:
        raise ConfigError(f"data: expected NAME_ROWSxDIM.f32 files in {str(folder)!r}, found none")
    return dumps


def parse_dump(path: Path) -> Dump:
    """Name and shape from the file name, checked against the file's size."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise ConfigError(
            f"data: expected a file name NAME_ROWSxDIM.f32, got {path.name!r}; "
            f"rename it, for example to {path.stem + '_2048x64.f32'!r}"
        )
    rows, dim = int(match["rows"]), int(match["dim"])
    expected, size = 4 * rows * dim, path.stat().st_size
    if expected == 0:
        raise ConfigError(
            f"data: expected at least one value in {path.name!r}, got {rows} x {dim}; remove it"
        )
    if size != expected:
        raise ConfigError(
            f"data: expected {expected} bytes in {path.name!r} for {rows} x {dim} float32, got {size}; "
            f"correct the shape in its name or dump it again"
        )
    return Dump(path, match["name"], rows, dim)
