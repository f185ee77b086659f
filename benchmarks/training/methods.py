"""The methods that are compared: one engine, one model, one wire; only what travels differs.

========= ======= ============================ ============================== ===== ==================
method    sends   rows                         gradients                      ids   dense gradients
========= ======= ============================ ============================== ===== ==================
plain     pooled  float32                      float32                        raw   float32
fp16      pooled  float16                      float16                        raw   float32
int8      pooled  int8 row-wise                int8 row-wise                  raw   float32
rows_fp32 rows    float32                      float32                        raw   float32
sc24      pooled  SC'24 hybrid, its bounds     float32                        raw   float32
laconic   rows    BoundedRows                  BoundedRows, unbiased          coded Levels
========= ======= ============================ ============================== ===== ==================

Pooled tables are whole on one rank, as in the DLRM paper; those that send rows are split by rows.

These six use torch's all-to-all, which gloo runs in one direction at a time. With ``_pairwise`` behind their
names they use sends and receives, the default of Laconic, which help whoever sends much.

Laconic's bounds here are its defaults, the same for all tables: at SC'24's classes of bounds it sends a third
less on Book-Crossing, and costs 0.0004 AUC there and 0.001 on The Complete Journey.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from glob import escape
from typing import Literal

from laconic.adapt.policy import FixedPolicy, TableRule, plan_from_rules
from laconic.codecs import BoundedRows, Cast, Hybrid
from laconic.data import Schema
from laconic.errors import ConfigError
from laconic.train.settings import EmbeddingSettings

ROW_BOUND, GRADIENT_BOUND = 0.01, 0.35
"""Of looked-up values, as a share of their block's range; of gradients, of its root mean square."""


@dataclass(frozen=True, slots=True)
class TrainingMethod:
    """One way to send rows and gradients."""

    name: str
    send: Literal["rows", "pooled"]
    rule: Callable[[str, float], TableRule]
    """Of a table's name and its bound in the paper."""
    coded_ids: bool = False
    dense: Literal["exact", "levels"] = "exact"
    """What dense gradients travel as."""
    pairwise: bool = False
    """Sends and receives instead of torch's all-to-all."""

    def embeddings(self, base: EmbeddingSettings) -> EmbeddingSettings:
        """Where its tables are."""
        sharding = "row" if self.send == "rows" else "table"
        return base.model_copy(update={"send": self.send, "sharding": sharding, "replicate_below": 0})

    def policy(self, schema: Schema) -> FixedPolicy:
        """Return what its tables travel as."""
        rules = [self.rule(escape(feature.name), paper_bound(feature.rows)) for feature in schema.categorical]
        names = [feature.name for feature in schema.categorical]
        return FixedPolicy(plan_from_rules(names, rules, coded_ids=self.coded_ids))


def paper_bound(rows: int) -> float:
    """Bound of a table's class in the SC'24 paper, relative to the range: nearly a rule by cardinality."""
    if rows >= 415_000:
        return 0.01
    return 0.05 if rows <= 970 else 0.03


def _cast(dtype: Literal["fp16", "int8"]) -> Callable[[str, float], TableRule]:
    codec = Cast(dtype)
    return lambda name, _: TableRule(tables=name, forward=codec, backward=codec)


def _exact(name: str, _: float) -> TableRule:
    return TableRule(tables=name)


def _sc24(name: str, bound: float) -> TableRule:
    return TableRule(tables=name, forward=Hybrid(bound, relative_to="range"))


def _bounded(row_bound: float, gradient_bound: float) -> Callable[[str, float], TableRule]:
    rows = BoundedRows(row_bound, relative_to="range")
    gradients = BoundedRows(gradient_bound, relative_to="rms", rounding="unbiased")
    return lambda name, _: TableRule(tables=name, forward=rows, backward=gradients)


METHODS: dict[str, TrainingMethod] = {
    method.name: method
    for method in (
        TrainingMethod("plain", "pooled", _exact),
        TrainingMethod("fp16", "pooled", _cast("fp16")),
        TrainingMethod("int8", "pooled", _cast("int8")),
        TrainingMethod("rows_fp32", "rows", _exact),
        TrainingMethod("sc24", "pooled", _sc24),
        TrainingMethod(
            "laconic", "rows", _bounded(ROW_BOUND, GRADIENT_BOUND), coded_ids=True, dense="levels"
        ),
    )
}

PAIRWISE: dict[str, TrainingMethod] = {
    f"{name}_pairwise": replace(METHODS[name], name=f"{name}_pairwise", pairwise=True) for name in METHODS
}


def find_method(name: str) -> TrainingMethod:
    """Return a method by name."""
    known = {**METHODS, **PAIRWISE}
    if name not in known:
        raise ConfigError(f"bench: no such method {name!r} (known: {', '.join(known)})")
    return known[name]
