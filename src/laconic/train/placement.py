"""Where a run's tables live, and whether they send what their plan predicted.

Tables live as the run's settings say, or as a plan file of ``laconic plan`` does. A plan is made
from statistics of lookups; when users or data change, it is no longer the best one. So all ranks
compare together, at intervals, what was sent with what was predicted. The deviation is the sum of
all differences, by table and direction, as a share of what was predicted.
Shape legend: ``P`` parts of tables: themselves, and their hot rows.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.adapt.settings import (
    CodecException,
    CompressionSettings,
    RowCodec,
    TableSettings,
)
from laconic.data import Schema
from laconic.errors import ConfigError
from laconic.exchange import Ledger, Table
from laconic.exchange.ledger import DIRECTIONS
from laconic.exchange.tables.placement import RowPlacement
from laconic.plan.plan_file import PlacementPlan, check_plan, read_plan
from laconic.train.ranks import Ranks
from laconic.train.settings import RunSettings

__all__ = ["Deviation", "Placement", "PlanCheck", "make_placement", "planned_compression"]

Floats = NDArray[np.float64]
_Cell = tuple[str, str]
_WINDOW = 100  # steps between two looks
_TOLERANCE = 0.2


@dataclass(frozen=True, eq=False)
class Placement:
    """Tables with their places; the rest is there only if a plan says so."""

    tables: tuple[Table, ...]
    hot: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """Ascending ids of rows, by table, of which every rank has a copy."""
    warm: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """Ascending ids of rows, by table, that stay in memory where their table is cold."""
    plan: PlacementPlan | None = None

    @property
    def hot_every(self) -> int:
        """Steps between two synchronizations of copies."""
        return 1 if self.plan is None else self.plan.hot.every

    @property
    def look_ahead(self) -> bool:
        """Whether rows of the next step travel while one computes."""
        return self.plan is not None and self.plan.look_ahead

    def rows(self, cold_folder: Path) -> RowPlacement:
        """Return where copies of rows are, and those of cold tables: in files of this folder."""
        kept: dict[str, Any] = {"hot": self.hot, "warm": self.warm, "hot_every": self.hot_every}
        return RowPlacement(**kept, cold_folder=cold_folder, look_ahead=self.look_ahead)

    @classmethod
    def from_settings(cls, run: RunSettings, schema: Schema) -> Placement:
        """One kind of placement for all tables that are not small."""
        tables, settings = [], run.embeddings
        for feature in schema.categorical:
            replicated = feature.rows < settings.replicate_below
            tables.append(
                Table(
                    name=feature.name,
                    rows=feature.rows,
                    dim=run.model.dim,
                    pooling=settings.pooling,
                    sharding="replicated" if replicated else settings.sharding,
                    send="rows" if replicated else settings.send,
                )
            )
        return cls(tuple(tables))


def make_placement(settings: RunSettings, schema: Schema, ranks: int, plan_file: Path | None) -> Placement:
    """Place the table of every categorical feature; ``PlanError`` for a plan of another run."""
    if plan_file is None:
        return Placement.from_settings(settings, schema)
    plan, hot, warm = read_plan(plan_file)
    rows = {feature.name: feature.rows for feature in schema.categorical}
    check_plan(plan, ranks=ranks, dim=settings.model.dim, rows=rows)
    tables = []
    for name, count in rows.items():
        planned = plan.tables[name]
        tables.append(
            Table(
                name=name,
                rows=count,
                dim=settings.model.dim,
                pooling=settings.embeddings.pooling,
                sharding=planned.sharding,
                send=planned.send,
                owner=planned.owner,
                cold=planned.cold,
            )
        )
    return Placement(tuple(tables), hot, warm, plan)


def planned_compression(given: CompressionSettings, placement: Placement) -> CompressionSettings:
    """Return the settings with the bounds that the plan has for single tables."""
    plan = {} if placement.plan is None else placement.plan.tables
    tables = {
        glob.escape(name): TableSettings(
            rows=_planned(name, table.exact in (True, "rows"), table.bound, given.rows),
            gradients=_planned(
                name, table.exact in (True, "gradients"), table.gradient_bound, given.gradients
            ),
        )
        for name, table in plan.items()
        if table.exact or table.bound is not None or table.gradient_bound is not None
    }
    if tables and given.tables:  # the last pattern that matches counts: neither order is surely meant
        raise ConfigError(
            "--plan: the plan has bounds of single tables, and so has compression.tables of the run or its policy; "
            "remove one of them"
        )
    return given.model_copy(update={"tables": tables}) if tables else given


def _planned(name: str, exact: bool, bound: float | None, usual: RowCodec) -> CodecException:
    if bound is not None and usual.method != "bounded":
        raise ConfigError(
            f"--plan: table {name!r} has a bound of {bound!r}, but the run sends {usual.method!r}; "
            "plan again with --run and this run's settings"
        )
    if exact:
        return CodecException(method="exact")
    return CodecException() if bound is None else CodecException(bound=bound)


@dataclass(frozen=True, slots=True)
class Deviation:
    """What a look found; bytes are per rank and step, the mean over ranks."""

    steps: int
    """Number of last steps that were compared."""
    share: float
    """Sum of differences / sum of predictions."""
    table: str
    """Name of the table that differs most, in bytes; ``direction`` is the direction that does."""
    direction: str
    predicted: float
    measured: float

    @property
    def too_far(self) -> bool:
        """Whether the plan should be made again."""
        return self.share > _TOLERANCE

    def line(self) -> str:
        """Say it to the user."""
        return (
            f"plan: over the last {self.steps} steps ranks sent {self.share:.0%} other than planned, most of it in table "
            f"{self.table!r}, {self.direction}: {self.predicted:,.0f} bytes planned, {self.measured:,.0f} sent per step; "
            "count lookups again with laconic profile, then laconic plan with --run and this run's settings, "
            "which say how rows and gradients are compressed"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as a line of the metrics has it."""
        return {**asdict(self), "too_far": self.too_far}


class PlanCheck:
    """Looks at the ledgers of all ranks; every rank calls it alike."""

    def __init__(self, plan: PlacementPlan | None, ledger: Ledger, ranks: Ranks) -> None:
        """Without a plan, or for one without predictions, there is nothing to check."""
        self._ranks, self._names = ranks, ledger.names
        self._predicted = {} if plan is None or ranks.count == 1 else _predictions(plan)
        self._before = self._counts(ledger)
        self.last: Deviation | None = None
        """Deviation that the last look found."""

    def after(self, step: int, ledger: Ledger, *, end: bool = False) -> Deviation | None:
        """Look, if it is time to; at the end also at less than a window, if there was none."""
        if not self._predicted or not (step % _WINDOW == 0 or (end and self.last is None)):
            return None
        now = self._counts(ledger)
        sent_3P, steps_3 = now[0] - self._before[0], now[1] - self._before[1]
        if not steps_3.all():
            return None
        everyone: Floats = np.mean(self._ranks.gather(sent_3P / steps_3[:, None]), axis=0)
        self._before = now
        self.last = self._compare(everyone, int(steps_3[-1]))
        return self.last

    def _counts(self, ledger: Ledger) -> tuple[Floats, Floats]:
        accounts = [ledger.accounts[direction] for direction in DIRECTIONS]
        sent_3P = np.array([account.after_T for account in accounts], np.float64)
        return sent_3P, np.array([account.steps for account in accounts], np.float64)

    def _compare(self, sent_3P: Floats, steps: int) -> Deviation:
        measured: dict[_Cell, float] = dict.fromkeys(self._predicted, 0.0)
        for direction, sent_P in zip(DIRECTIONS, sent_3P, strict=True):
            for name, sent in zip(self._names, sent_P.tolist(), strict=True):
                table = name.removesuffix(" (hot)")
                hot = table != name and (table, "hot") in measured
                cell = (table, "hot") if hot else (name, direction)
                measured[cell] = measured.get(cell, 0.0) + sent
        differences = {cell: abs(sent - self._predicted.get(cell, 0.0)) for cell, sent in measured.items()}
        worst = max(differences, key=lambda cell: differences[cell])
        share = sum(differences.values()) / sum(self._predicted.values())
        return Deviation(steps, share, *worst, self._predicted.get(worst, 0.0), measured[worst])


def _predictions(plan: PlacementPlan) -> dict[_Cell, float]:
    """By table and direction; empty if nothing was predicted."""
    found = {
        (name, direction): getattr(table.predicted, direction)
        for name, table in plan.tables.items()
        for direction in (*DIRECTIONS, "hot")
    }
    return found if any(found.values()) else {}
