"""The matrices that are compressed, from files or generated, and the ratio that is possible.

Files are embedding dumps ``NAME_ROWSxDIM.f32``, raw little-endian float32, row-major. Generated
data is the same on every machine:

========================= ====================================================================
case                      why
========================= ====================================================================
normal table              no row twice, nothing to find but the entropy of the codes
Zipf lookups              what a step asks an embedding table for; and its distinct rows
heavy-tailed gradients    what comes back: a range-relative bound would zero nearly all of it
many small blocks         what an exchange between many ranks and tables is made of
========================= ====================================================================

Shape suffixes: ``R`` rows, ``U`` distinct rows, ``D`` columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.errors import ConfigError

OF_RANGE = "of the range"
OF_RMS = "of the RMS"
ABSOLUTE = "absolute"

PAPER_BOUNDS = {"tb_table1": 0.03, "tb_table5": 0.05, "kaggle_table5": 0.03}
"""Bounds of the SC'24 authors for the dumps that they published, relative to the range."""

OTHER_BOUNDS = (0.01, 0.03, 0.05)
"""Their small, medium and large bound, for everybody else's dumps."""

TABLE_ROWS = 36_084  # as Criteo Terabyte's table 1, whose lookups the Zipf case resembles
ZIPF_EXPONENT = 1.05
INITIAL_SCALE = 0.003
NORMAL_ROWS, QUICK_ROWS = 1_000_000, 65_536
DIM = 64

Floats = NDArray[np.float32]
Codes = NDArray[np.unsignedinteger]

_NAME = re.compile(r"(?P<name>.+)_(?P<rows>\d+)x(?P<dim>\d+)\.f32")
_RUN = 1 << 16  # rows at a time, to keep float64 copies small


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A float32 matrix with its bound."""

    name: str
    values_RD: Tensor
    asked: float
    """The bound as the user states it, in ``unit``."""
    unit: str
    bound: float
    """The bound in the unit of the data: what the error is compared with."""
    relative: bool = False
    """Laconic's codecs find the range themselves, within their time; peers are told the bound."""
    seed: int | None = None
    """Seed of a codec that rounds without bias and takes part as well; None: it does not."""
    blocks: int = 1
    """Number of equal blocks; with several, one call for all is compared with one block."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.values_RD.shape[0]

    @property
    def dim(self) -> int:
        """Number of columns."""
        return self.values_RD.shape[1]

    @property
    def raw_bytes(self) -> int:
        """Bytes of the values as float32."""
        return 4 * self.values_RD.numel()

    @property
    def title(self) -> str:
        """Name, shape and bound, for people."""
        absolute = f" = {self.bound:.3g}" if self.bound != self.asked else ""
        return f"{self.name}: {self.rows:,} x {self.dim}, bound {self.asked:g} {self.unit}{absolute}"


def relative_case(name: str, values_RD: Tensor, share: float) -> Case:
    """Bound ``share * (max - min)``, as the codecs compute it; ``ConfigError`` without a range."""
    low, high = (float(v) for v in torch.aminmax(values_RD))
    if not high > low:
        raise ConfigError(
            f"{name}: expected values that differ, got {low!r} everywhere, which leaves no range "
            f"for a relative bound; remove it"
        )
    return Case(name, values_RD, share, OF_RANGE, share * (high - low), relative=True)


def distinct_rows(case: Case) -> Case:
    """Keep what a requester that asks for no row twice would get: first occurrences, same bound."""
    rows_RD = np.ascontiguousarray(case.values_RD.numpy())
    whole = rows_RD.view(np.dtype((np.void, rows_RD.itemsize * case.dim))).ravel()
    first = np.unique(whole, return_index=True)[1]
    first.sort()
    return replace(
        case, name=f"{case.name} distinct rows", values_RD=torch.from_numpy(rows_RD[first]), relative=False
    )


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
    """List the dumps of a folder by name; ``ConfigError`` if there are none, or a wrong one."""
    if not folder.is_dir():
        raise ConfigError(f"data: expected a folder of NAME_ROWSxDIM.f32 files, got {str(folder)!r}")
    dumps = [parse_dump(path) for path in sorted(folder.glob("*.f32"))]
    if not dumps:
        raise ConfigError(f"data: expected NAME_ROWSxDIM.f32 files in {str(folder)!r}, found none")
    return dumps


def parse_dump(path: Path) -> Dump:
    """Return name and shape from the file name, checked against the file's size."""
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


def generators(*, quick: bool) -> list[Callable[[], list[Case]]]:
    """Return what makes the generated cases, in the order in which they are shown.

    They cost memory and time only when they are called.
    """
    rows = QUICK_ROWS if quick else NORMAL_ROWS
    return [
        lambda: [normal_table(rows)],
        zipf_lookups,
        lambda: [heavy_tailed_gradients(8192)],
        lambda: [normal_blocks(1000), trained_blocks(1000)],
    ]


def normal_table(rows: int) -> Case:
    """Make standard normal values, bound 0.02."""
    values_RD = np.random.default_rng(1).standard_normal((rows, DIM), dtype=np.float32)
    return Case("normal table", torch.from_numpy(values_RD), 0.02, ABSOLUTE, 0.02)


def zipf_lookups(rows: int = 2048) -> list[Case]:
    """Look up a batch, and take its distinct rows."""
    random = np.random.default_rng(2)
    table_RD = trained_rows(random, TABLE_ROWS, DIM)
    odds_R = 1.0 / np.arange(1, TABLE_ROWS + 1) ** ZIPF_EXPONENT
    ids = random.choice(TABLE_ROWS, size=rows, p=odds_R / odds_R.sum())
    whole = relative_case("Zipf lookups", torch.from_numpy(table_RD[ids]), 0.03)
    return [whole, distinct_rows(whole)]


def trained_rows(random: np.random.Generator, rows: int, dim: int) -> Floats:
    """Make rows like those of a trained table: normal, with scales that grow with popularity.

    Row 0 is the most popular. The constants follow the Terabyte dump: row scales from 0.003 (never
    updated) to 0.035, log-normal around a median that rises as the fourth root of popularity.
    """
    popularity_R = (1.0 + np.arange(rows)) ** -0.25
    learned_R = 0.035 * popularity_R * random.lognormal(0.0, 0.4, rows)
    scale_R1 = (INITIAL_SCALE + learned_R).astype(np.float32)[:, None]
    return random.standard_normal((rows, dim), dtype=np.float32) * scale_R1


def heavy_tailed_gradients(rows: int) -> Case:
    """Make gradients of Student's t with log-normal rows, 70 % near zero; bound half the RMS."""
    random = np.random.default_rng(3)
    scale_R1 = random.lognormal(0.0, 1.0, (rows, 1)) * np.where(random.random((rows, 1)) < 0.7, 1e-3, 1.0)
    values_RD = (1e-4 * scale_R1 * random.standard_t(3, (rows, DIM))).astype(np.float32)
    rms = float(np.sqrt(np.mean(np.square(values_RD, dtype=np.float64))))
    return Case(
        "heavy-tailed gradients", torch.from_numpy(values_RD), 0.5, OF_RMS, 0.5 * rms, seed=20_240_817
    )


def normal_blocks(blocks: int, rows: int = 16, dim: int = 32) -> Case:
    """Make standard normal blocks of 16 x 32, to be encoded in one call or as one block."""
    values_RD = np.random.default_rng(5).standard_normal((blocks * rows, dim), dtype=np.float32)
    name = f"{blocks:,} normal blocks of {rows} x {dim}"
    return Case(name, torch.from_numpy(values_RD), 0.02, ABSOLUTE, 0.02, blocks=blocks)


def trained_blocks(blocks: int, rows: int = 16, dim: int = 32) -> Case:
    """Make blocks of 16 x 32 of distinct trained rows, which have a third of the bits."""
    values_RD = torch.from_numpy(trained_rows(np.random.default_rng(4), blocks * rows, dim))
    low, high = (float(v) for v in torch.aminmax(values_RD))
    name = f"{blocks:,} trained blocks of {rows} x {dim}"
    return Case(name, values_RD, 0.03, OF_RANGE, 0.03 * (high - low), blocks=blocks)


def ideal_ratio(case: Case) -> float:
    """Return raw bytes over those of an ideal order-0 coder; infinite if there is a single code.

    Codes are ``round(x / 2 bound)``. Equal rows of codes are sent once, then every row is a
    reference to one of them::

        bits = U * D * H(codes of the distinct rows) + R * H(references)

    or, where that is more, as it is without duplicates, ``R * D * H(codes)``. ``H`` is the entropy
    per symbol, tables for free. A codec that sees order among its references can do better than
    this; without such order it cannot.
    """
    codes_RD = quantize(case.values_RD.numpy(), case.bound)
    row = np.dtype((np.void, codes_RD.itemsize * case.dim))
    first_U, count_U = np.unique(codes_RD.view(row).ravel(), return_index=True, return_counts=True)[1:]
    bits = total_bits(_counts(codes_RD))
    if first_U.size < case.rows:
        bits = min(bits, total_bits(_counts(codes_RD[first_U])) + total_bits(count_U))
    return 8 * case.raw_bytes / bits if bits else float("inf")


def quantize(values_RD: NDArray[np.float32], bound: float) -> Codes:
    """Return codes by float64 arithmetic, from 0 on, in the narrowest type that holds them."""
    low, high = (np.rint(float(v) / (2 * bound)) for v in (values_RD.min(), values_RD.max()))
    codes_RD = np.empty(values_RD.shape, np.min_scalar_type(int(high - low)))
    for start in range(0, values_RD.shape[0], _RUN):
        part = values_RD[start : start + _RUN].astype(np.float64)
        codes_RD[start : start + _RUN] = np.rint(part / (2 * bound)) - low
    return codes_RD


def total_bits(counts: NDArray[np.int64]) -> float:
    """Entropy of all symbols together, given how often each occurs."""
    used = counts[counts > 0].astype(np.float64)
    return float(-(used * np.log2(used / used.sum())).sum()) + 0.0


def _counts(codes: Codes) -> NDArray[np.int64]:
    return np.unique(codes, return_counts=True)[1] if codes.itemsize > 2 else np.bincount(codes.ravel())
