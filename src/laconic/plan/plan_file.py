"""The plan file: where tables and their hot and warm rows live, as TOML for people to edit.

::

    format = 1
    ranks = 2
    batch = 1024                     # samples per rank and step that the predictions are for
    dim = 16
    hot_rows = "plan.hot.npz"        # beside the plan; ids of the hot rows of each table
    hot_rows_sha256 = "9f86..."

    [tables.c_user]
    rows = 92108
    sharding = "row"
    send = "rows"
    hot = 1200
    why = "..."
    [tables.c_user.predicted]        # bytes per rank and step
    ids = 1811.2
    ...

Ids of hot or warm rows are in files beside it: an ``.npz`` with one int64 array of ascending ids
for each table, called as the table. All that such a file claims is checked against the plan before
memory is taken for it.

Normative text: ``docs/formats/plan.md``. ``laconic plan`` writes it, ``laconic train --plan``
carries it out. Shape legend: ``N`` ranks, ``R`` rows of a table that a file names.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

import numpy as np
import tomli_w
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from laconic.config import Bytes, Settings, load
from laconic.cost.load import PredictedBytes
from laconic.errors import ConfigError, FormatError, PlanError
from laconic.files import whole_file, write_whole

__all__ = [
    "EmbeddingsMemory",
    "HotSettings",
    "PlacementPlan",
    "PredictedStep",
    "RowIds",
    "TablePlan",
    "check_plan",
    "read_plan",
    "read_row_ids",
    "write_plan",
    "write_row_ids",
]

RowIds = dict[str, NDArray[np.int64]]

_LONGEST_HEADER = 4096  # bytes of an .npy file before its values
_THEN = (1980, 1, 1, 0, 0, 0)  # the same ids make the same file at any time


class TablePlan(Settings):
    """Where one table lives and what it sends."""

    rows: int = Field(ge=1, lt=2**40)
    """Number of rows of the table that the plan was made for."""

    sharding: Literal["table", "row", "replicated"]
    """``table``: the whole table is on ``owner``. ``row``: its rows are divided among all ranks.
    ``replicated``: it is on every rank."""

    send: Literal["rows", "pooled"] = "rows"
    """``rows`` sends each distinct row once per destination, ``pooled`` one vector per sample."""

    owner: int | None = Field(default=None, ge=0)
    """Rank that has the whole table. If it is left out, the trainer spreads such tables itself."""

    hot: int = Field(default=0, ge=0)
    """Number of hot rows, which every rank has a copy of. Their ids are in the file of hot rows."""

    cold: bool = False
    """Whether the table's shards live in memory-mapped files."""

    warm: int = Field(default=0, ge=0)
    """Number of rows of a cold table that are in memory all the same. Their ids are in the file of
    warm rows."""

    bound: float | None = Field(default=None, gt=0)
    """Error bound of its rows; by default the run's."""

    gradient_bound: float | None = Field(default=None, gt=0)
    """Error bound of its gradients; by default the run's."""

    exact: Literal["rows", "gradients", True, False] = False
    """Whether rows and gradients, or one of them, are sent as they are."""

    why: str = ""
    """The reason for this place, for people."""

    predicted: PredictedBytes = PredictedBytes()
    """Bytes that the table will send."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.owner is not None and self.sharding != "table":
            raise ValueError(
                f"only sharding 'table' has an owner, got owner {self.owner} and {self.sharding!r}"
            )
        if self.sharding == "replicated" and (self.hot or self.send == "pooled"):
            raise ValueError(
                f"a replicated table is everywhere already, got hot {self.hot} and send {self.send!r}; "
                "leave both out"
            )
        if self.hot and self.send == "pooled":
            raise ValueError(
                f"only a table that sends rows has hot ones, got hot {self.hot} and send 'pooled'"
            )
        if self.hot > self.rows:
            raise ValueError(f"expected at most {self.rows} hot rows, one for each row, got {self.hot}")
        if self.warm and not self.cold:
            raise ValueError(
                f"only a table with cold = true has warm rows, got warm {self.warm}; all its rows are in memory, leave it out"
            )
        if self.hot + self.warm > self.rows:
            raise ValueError(
                f"expected at most {self.rows} rows that are hot or warm, got {self.hot} and {self.warm}"
            )
        both = {True: (True, True), "rows": (True, False), "gradients": (False, True), False: (False, False)}
        for name, is_exact in zip(("bound", "gradient_bound"), both[self.exact], strict=True):
            if is_exact and getattr(self, name) is not None:
                raise ValueError(f"expected {name} or exact = {self.exact!r}, got both; leave one out")
        return self


class EmbeddingsMemory(Settings):
    """Bytes of embeddings and their optimizer state, by rank."""

    ram_N: tuple[int, ...] = ()
    """Bytes in memory on every rank, with hot and warm rows and replicated tables."""

    hot: int = Field(default=0, ge=0)
    """Bytes of hot rows on each rank, which are part of ``ram_N``."""

    files_N: tuple[int, ...] = ()
    """Bytes in memory-mapped files on every rank."""


class PredictedStep(Settings):
    """The step that is predicted for the plan."""

    step_ms: float = Field(ge=0)
    """Milliseconds of a step of training."""

    samples_per_s: float = Field(ge=0)
    """Samples per second of all ranks together."""

    bottleneck: str
    """What the step waits for most."""

    ids_bytes: Bytes
    """Bytes of ids that a rank sends in a step, the mean over ranks; likewise the next fields."""

    forward_bytes: Bytes
    backward_bytes: Bytes
    hot_bytes: Bytes
    dense_bytes: Bytes


class HotSettings(Settings):
    """How copies of hot rows are kept equal."""

    every: int = Field(default=1, ge=1)
    """Steps between two synchronizations. With 1, copies are always equal and training is exact."""


class PlacementPlan(Settings):
    """The plan: places of all tables, in their order."""

    format: Literal[1] = 1
    """Version of this format."""

    ranks: int = Field(ge=1)
    """Number of ranks that the plan was made for."""

    batch: int = Field(ge=1)
    """Samples per rank and step that the predictions are for."""

    dim: int = Field(ge=1)
    """Dimensions of every embedding."""

    hot_rows: str | None = None
    """File of the ids of hot rows, in the plan's folder."""

    hot_rows_sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """Checksum of that file."""

    warm_rows: str | None = None
    """File of the ids of warm rows, in the plan's folder."""

    warm_rows_sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """Checksum of that file."""

    look_ahead: bool = False
    """Whether rows of the next step that this one does not change are prefetched while it computes,
    if they are sent exactly."""

    hot: HotSettings = HotSettings()
    predicted: PredictedStep | None = None
    embeddings_memory: EmbeddingsMemory = EmbeddingsMemory()
    tables: dict[str, TablePlan] = Field(min_length=1)

    @field_validator("hot_rows", "warm_rows")
    @classmethod
    def _beside(cls, name: str | None) -> str | None:
        if name is not None and (name != Path(name).name or "\0" in name):
            raise ValueError(f"expected the name of a file in the plan's folder, got {name!r}")
        return name

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for name, table in self.tables.items():
            if table.owner is not None and table.owner >= self.ranks:
                raise ValueError(
                    f"tables.{name}.owner: expected a rank below {self.ranks}, got {table.owner}"
                )
        return self


def read_plan(path: str | Path) -> tuple[PlacementPlan, RowIds, RowIds]:
    """Read a plan, and the ids of its hot and of its warm rows by table."""
    path = Path(path)
    plan = load(path, PlacementPlan)
    return plan, _read_ids(path, plan, "hot"), _read_ids(path, plan, "warm")


def _read_ids(path: Path, plan: PlacementPlan, kind: Literal["hot", "warm"]) -> RowIds:
    file: str | None = getattr(plan, f"{kind}_rows")
    checksum: str | None = getattr(plan, f"{kind}_rows_sha256")
    counts = _counts(plan, kind)
    if bool(counts) != (file is not None):
        raise ConfigError(
            f"{path}: {kind}_rows: expected where a table has {kind} rows, and only there, got {file!r}"
        )
    if file is None:
        return {}
    if checksum is None:
        raise ConfigError(f"{path}: {kind}_rows_sha256: required beside {kind}_rows, but not given")
    expected = {name: (count, plan.tables[name].rows) for name, count in counts.items()}
    return read_row_ids(path.parent / file, checksum, expected)


def _counts(plan: PlacementPlan, kind: Literal["hot", "warm"]) -> dict[str, int]:
    """Return the number of rows of this kind by table, if there are any."""
    return {name: count for name, table in plan.tables.items() if (count := getattr(table, kind))}


def write_plan(path: Path, plan: PlacementPlan, hot_ids: RowIds, warm_ids: RowIds) -> PlacementPlan:
    """Write a plan, and beside it the ids of its hot and warm rows; return it as written.

    ``plan`` itself needs no names of these files. They are written first, so that a plan that can
    be read is whole.
    """
    kinds: dict[Literal["hot", "warm"], RowIds] = {"hot": hot_ids, "warm": warm_ids}
    for kind, ids in kinds.items():
        found = {name: len(ids_R) for name, ids_R in ids.items()}
        if _counts(plan, kind) != found:
            raise FormatError(f"plan: expected ids of {kind} rows {_counts(plan, kind)}, got {found}")
    files: dict[str, str | None] = {}
    for kind, ids in kinds.items():
        name = f"{path.stem}.{kind}.npz" if ids else None
        checksum = write_row_ids(path.parent / name, ids) if name else None
        files |= {f"{kind}_rows": name, f"{kind}_rows_sha256": checksum}
    plan = plan.model_copy(update=files)
    write_whole(path, tomli_w.dumps(plan.model_dump(mode="json", exclude_none=True)))
    return plan


def check_plan(plan: PlacementPlan, *, ranks: int, dim: int, rows: Mapping[str, int]) -> None:
    """Refuse a plan that was made for another run: other ranks, dimensions, tables or rows."""
    if plan.ranks != ranks:
        raise PlanError(f"plan: made for {plan.ranks} ranks, got {ranks}; start {plan.ranks}, or plan again")
    if plan.dim != dim:
        raise PlanError(f"plan: made for embeddings of {plan.dim} dimensions, got {dim}; plan again")
    for name, count in rows.items():
        table = plan.tables.get(name)
        if table is None:
            raise PlanError(f"plan: no table {name!r} (known: {', '.join(plan.tables)}); plan again")
        if table.rows != count:
            raise PlanError(
                f"plan: table {name!r} has {table.rows} rows, that of the run {count}; plan again"
            )
    unknown = [name for name in plan.tables if name not in rows]
    if unknown:
        raise PlanError(f"plan: the run has no table {unknown[0]!r} (known: {', '.join(rows)}); plan again")


def write_row_ids(path: Path, ids: Mapping[str, NDArray[np.int64]]) -> str:
    """Write ids by table; return the file's SHA-256."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, ids_R in ids.items():
            array = io.BytesIO()
            npy.write_array(array, np.ascontiguousarray(ids_R, "<i8"), version=(1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _THEN), array.getvalue(), zipfile.ZIP_DEFLATED)
    with whole_file(path) as partial:
        partial.write_bytes(content.getvalue())
    return hashlib.sha256(content.getvalue()).hexdigest()


def read_row_ids(path: Path, sha256: str, expected: Mapping[str, tuple[int, int]]) -> RowIds:
    """Read ids by table; ``expected`` has their number and the number of the table's rows."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FormatError(
            f"{path}: ids of rows cannot be read: {error.strerror}; it belongs beside the plan"
        ) from None
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise FormatError(
            f"{path}: expected SHA-256 {sha256}, got {found}; this is not the file that was written with the plan"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            known = sorted(f"{name}.npy" for name in expected)
            if sorted(archive.namelist()) != known:
                raise FormatError(f"{path}: expected arrays {known}, got {sorted(archive.namelist())}")
            return {name: _read(path, archive, name, *counts) for name, counts in expected.items()}
    # RuntimeError: a password, or a way to compress that zipfile does not know
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise FormatError(f"{path}: expected an .npz file, got one that is damaged: {error}") from None


def _read(path: Path, archive: zipfile.ZipFile, name: str, count: int, rows: int) -> NDArray[np.int64]:
    where = f"{path}: table {name!r}"
    with archive.open(f"{name}.npy") as member:
        head = io.BytesIO(member.read(_LONGEST_HEADER))
        try:
            version = npy.read_magic(head)
            if version != (1, 0):
                raise ValueError(f"version {version}")
            shape, _, dtype = npy.read_array_header_1_0(head)
        except ValueError as error:
            raise FormatError(f"{where}: expected an .npy array, got {error}") from None
        if shape != (count,) or dtype != np.dtype("<i8"):
            raise FormatError(f"{where}: expected {count} ids as <i8, got {dtype.str} of shape {shape}")
        values = head.read() + member.read(8 * count + 1)
    if len(values) != 8 * count:
        raise FormatError(f"{where}: expected {8 * count} bytes for {count} ids, got {len(values)} or more")
    ids_R = np.frombuffer(values, "<i8").astype(np.int64)
    if (np.diff(ids_R) <= 0).any() or ids_R[0] < 0 or ids_R[-1] >= rows:
        raise FormatError(f"{where}: expected ascending ids from 0 to {rows - 1}, got {_some(ids_R)}")
    return ids_R


def _some(ids_R: NDArray[np.int64]) -> str:
    shown = ", ".join(str(i) for i in ids_R[:4])
    return f"{shown}, ... {ids_R[-1]}" if len(ids_R) > 4 else shown
