"""The plan file: where every table and its hot rows live, as TOML that a person can read and edit.

::

    format = 1
    ranks = 2
    batch = 1024                     # samples per rank and step that the predictions are for
    dim = 16
    hot_rows = "plan.hot.npz"        # beside the plan; one int64 array of ascending ids for each table with hot rows
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

Normative text: ``docs/formats/plan.md``. ``laconic plan`` writes it, ``laconic train --plan`` carries it out.
Shape legend: ``H`` hot rows of a table, ``N`` ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from laconic.config import Settings, load
from laconic.errors import ConfigError, FormatError, PlanError
from laconic.placement.hot_rows_file import HotIds, read_hot_rows, write_hot_rows
from laconic.placement.toml_text import toml_text
from laconic.whole_file import write_whole

__all__ = [
    "EmbeddingsMemory",
    "HotSettings",
    "PlacementPlan",
    "PredictedBytes",
    "PredictedStep",
    "TablePlan",
    "check_plan",
    "read_plan",
    "write_plan",
]

Bytes = Annotated[float, Field(ge=0)]


class PredictedBytes(Settings):
    """What a table sends: bytes per rank and step, the mean over ranks, as the ledger counts them."""

    ids: Bytes = 0.0
    """Which rows are wanted."""

    forward: Bytes = 0.0
    """Rows, or pooled vectors."""

    backward: Bytes = 0.0
    """Their gradients, those of replicated tables included."""

    hot: Bytes = 0.0
    """Gradients of hot rows, with their ids."""

    @property
    def total(self) -> float:
        """All of them."""
        return self.ids + self.forward + self.backward + self.hot


class TablePlan(Settings):
    """Where one table lives and what it sends."""

    rows: int = Field(ge=1, lt=2**40)
    """Of the table that the plan was made for."""

    sharding: Literal["table", "row", "replicated"]
    """``table``: whole, on ``owner``; ``row``: rows dealt to all ranks; ``replicated``: on every rank."""

    send: Literal["rows", "pooled"] = "rows"
    """``rows``: each distinct row once per destination; ``pooled``: one vector for every sample."""

    owner: int | None = Field(default=None, ge=0)
    """Rank that has the whole table; left out: the trainer spreads such tables itself."""

    hot: int = Field(default=0, ge=0)
    """Rows that every rank has a copy of; their ids are in the file of hot rows."""

    cold: bool = False
    """The table's shards live in memory-mapped files."""

    bound: float | None = Field(default=None, gt=0)
    """Error bound of its rows; left out: as the run says."""

    gradient_bound: float | None = Field(default=None, gt=0)
    """Error bound of its gradients; left out: as the run says."""

    exact: Literal["rows", "gradients", True, False] = False
    """Its rows and gradients travel as they are, or one of them."""

    why: str = ""
    """For people: the reason."""

    predicted: PredictedBytes = PredictedBytes()
    """What it will send."""

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
        both = {True: (True, True), "rows": (True, False), "gradients": (False, True), False: (False, False)}
        for name, is_exact in zip(("bound", "gradient_bound"), both[self.exact], strict=True):
            if is_exact and getattr(self, name) is not None:
                raise ValueError(f"expected {name} or exact = {self.exact!r}, got both; leave one out")
        return self


class EmbeddingsMemory(Settings):
    """Bytes of embeddings and their optimizer state."""

    ram_N: tuple[int, ...] = ()
    """In memory, on every rank; hot rows and replicated tables included."""

    hot: int = Field(default=0, ge=0)
    """Of these for hot rows, on each rank."""

    files_N: tuple[int, ...] = ()
    """In memory-mapped files, on every rank."""


class PredictedStep(Settings):
    """What the plan should bring."""

    step_ms: float = Field(ge=0)
    """A step of training."""

    samples_per_s: float = Field(ge=0)
    """Of all ranks."""

    bottleneck: str
    """What the step waits for most."""

    ids_bytes: Bytes
    """Sent by a rank in a step, the mean over ranks; likewise the next."""

    forward_bytes: Bytes
    backward_bytes: Bytes
    hot_bytes: Bytes
    dense_bytes: Bytes


class HotSettings(Settings):
    """How copies of hot rows are kept equal."""

    every: int = Field(default=1, ge=1)
    """Steps between two synchronizations; 1: copies are always equal, and training is exact."""


class PlacementPlan(Settings):
    """All tables, in their order."""

    format: Literal[1] = 1
    """Version of this format."""

    ranks: int = Field(ge=1)
    """That the plan was made for."""

    batch: int = Field(ge=1)
    """Samples per rank and step that the predictions are for."""

    dim: int = Field(ge=1)
    """Dimensions of every embedding."""

    hot_rows: str | None = None
    """File of the ids of hot rows, in the plan's folder."""

    hot_rows_sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """Checksum of that file."""

    look_ahead: bool = False
    """Rows of the next step that this one does not change travel while it computes, where they travel exactly."""

    hot: HotSettings = HotSettings()
    predicted: PredictedStep | None = None
    embeddings_memory: EmbeddingsMemory = EmbeddingsMemory()
    tables: dict[str, TablePlan] = Field(min_length=1)

    @field_validator("hot_rows")
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


def read_plan(path: str | Path) -> tuple[PlacementPlan, HotIds]:
    """Read a plan, and the ids of its hot rows by table; ``ConfigError`` or ``FormatError`` says what is wrong."""
    path = Path(path)
    plan = load(path, PlacementPlan)
    expected = {name: (table.hot, table.rows) for name, table in plan.tables.items() if table.hot}
    if bool(expected) != (plan.hot_rows is not None):
        raise ConfigError(
            f"{path}: hot_rows: expected where a table has hot rows, and only there, got {plan.hot_rows!r}"
        )
    if plan.hot_rows is None:
        return plan, {}
    if plan.hot_rows_sha256 is None:
        raise ConfigError(f"{path}: hot_rows_sha256: required beside hot_rows, but not given")
    return plan, read_hot_rows(path.parent / plan.hot_rows, plan.hot_rows_sha256, expected)


def write_plan(path: Path, plan: PlacementPlan, hot_ids: HotIds) -> PlacementPlan:
    """Write a plan, and beside it the ids of its hot rows; return the plan as it was written.

    ``plan`` itself needs no name of that file. It is written first: a plan that can be read is whole.
    """
    counts = {name: table.hot for name, table in plan.tables.items() if table.hot}
    if counts != {name: len(ids_H) for name, ids_H in hot_ids.items()}:
        raise FormatError(
            f"plan: expected ids of hot rows {counts}, got { ({n: len(i) for n, i in hot_ids.items()}) }"
        )
    name = f"{path.stem}.hot.npz" if hot_ids else None
    checksum = write_hot_rows(path.parent / name, hot_ids) if name else None
    plan = plan.model_copy(update={"hot_rows": name, "hot_rows_sha256": checksum})
    write_whole(path, toml_text(plan.model_dump(mode="json", exclude_none=True)))
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
