"""Where a run's tables live: as its settings say, or as a plan file of ``laconic plan`` does."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from laconic.adapt.settings import ExchangeSettings, RuleSettings
from laconic.data import Schema
from laconic.errors import ConfigError
from laconic.exchange import Table
from laconic.plan.plan_file import PlacementPlan, check_plan, read_plan
from laconic.train.settings import EmbeddingSettings, RunSettings

__all__ = ["Placement", "make_placement", "planned_exchange"]


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

    @classmethod
    def from_settings(cls, settings: EmbeddingSettings, schema: Schema) -> Placement:
        """One kind of placement for all tables that are not small."""
        tables = []
        for feature in schema.categorical:
            replicated = feature.rows < settings.replicate_below
            tables.append(
                Table(
                    name=feature.name,
                    rows=feature.rows,
                    pooling=settings.pooling,
                    sharding="replicated" if replicated else settings.sharding,
                    send="rows" if replicated else settings.send,
                )
            )
        return cls(tuple(tables))


def make_placement(settings: RunSettings, schema: Schema, ranks: int, plan_file: Path | None) -> Placement:
    """Place every categorical feature's table; ``PlanError`` for a plan that was made for another run."""
    if plan_file is None:
        return Placement.from_settings(settings.embeddings, schema)
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
                pooling=settings.embeddings.pooling,
                sharding=planned.sharding,
                send=planned.send,
                owner=planned.owner,
                cold=planned.cold,
            )
        )
    return Placement(tuple(tables), hot, warm, plan)


def planned_exchange(exchange: ExchangeSettings, placement: Placement) -> ExchangeSettings:
    """Return the exchange with the bounds that the plan has for single tables."""
    if placement.plan is None:
        return exchange
    rules = tuple(
        RuleSettings(
            tables=glob.escape(name),
            exact=table.exact,
            bound=table.bound,
            gradient_bound=table.gradient_bound,
        )
        for name, table in placement.plan.tables.items()
        if table.exact or table.bound is not None or table.gradient_bound is not None
    )
    if rules and exchange.rules:  # the last rule that matches counts: neither order is surely meant
        raise ConfigError(
            "--plan: the plan has bounds of single tables, and so has exchange.rules of the run or its policy; "
            "remove one of them"
        )
    return exchange.model_copy(update={"rules": rules}) if rules else exchange
