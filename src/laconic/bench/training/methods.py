"""The methods that are compared: one engine, one model, one wire; only what travels differs.

========= ======= ============================ ============================== ====
method    sends   rows                         gradients                      ids
========= ======= ============================ ============================== ====
plain     pooled  float32                      float32                        raw
fp16      pooled  float16                      float16                        raw
int8      pooled  int8 row-wise                int8 row-wise                  raw
rows_fp32 rows    float32                      float32                        raw
sc24      pooled  SC'24 hybrid, its bounds     float32                        raw
laconic   rows    BoundedRows, SC'24's bounds  BoundedRows, unbiased          coded
========= ======= ============================ ============================== ====

Pooled tables are whole on one rank, as in the DLRM paper; those that send rows are split by rows.

These six use torch's all-to-all, which gloo runs in one direction at a time. ``plain_pairwise`` and
``laconic_pairwise`` are timed besides: the same over sends and receives, the default of Laconic, which help
whoever sends much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from glob import escape
from typing import Literal

from laconic.adapt import FixedPolicy, TableRule, plan_from_rules
from laconic.codecs import BoundedRows, Cast, Hybrid
from laconic.data import Schema
from laconic.errors import ConfigError
from laconic.train.settings import EmbeddingSettings

__all__ = ["GRADIENT_BOUND", "METHODS", "PAIRWISE", "Method", "find_method", "paper_bound"]

GRADIENT_BOUND = 0.5
"""Of a gradient's values, as a share of the root mean square of their block."""


@dataclass(frozen=True, slots=True)
class Method:
    """One way to send rows and gradients."""

    name: str
    send: Literal["rows", "pooled"]
    rule: Callable[[str, float], TableRule]
    """Of a table's name and bound."""
    coded_ids: bool = False
    pairwise: bool = False
    """Sends and receives instead of torch's all-to-all."""

    def embeddings(self, base: EmbeddingSettings) -> EmbeddingSettings:
        """Where its tables are."""
        sharding = "row" if self.send == "rows" else "table"
        return base.model_copy(update={"send": self.send, "sharding": sharding, "replicate_below": 0})

    def policy(self, schema: Schema, bound: float | None = None) -> FixedPolicy:
        """Return what its tables travel as; ``bound`` stands in for those of the paper's classes."""
        rules = [
            self.rule(escape(feature.name), bound or paper_bound(feature.rows))
            for feature in schema.categorical
        ]
        names = [feature.name for feature in schema.categorical]
        return FixedPolicy(plan_from_rules(names, rules, coded_ids=self.coded_ids))


def paper_bound(rows: int) -> float:
    """Bound of a table's class in the SC'24 paper, relative to the range: nearly a rule by cardinality."""
    if rows >= 415_000:
        return 0.01
    return 0.05 if rows <= 970 else 0.03


def _cast(dtype: Literal["fp16", "int8"]) -> Callable[[str, float], TableRule]:
    codec = Cast(dtype=dtype)
    return lambda name, _: TableRule(tables=name, forward=codec, backward=codec)


def _exact(name: str, _: float) -> TableRule:
    return TableRule(tables=name)


def _sc24(name: str, bound: float) -> TableRule:
    return TableRule(tables=name, forward=Hybrid(bound=bound, relative=True))


def _laconic(name: str, bound: float) -> TableRule:
    return TableRule(
        tables=name,
        forward=BoundedRows(bound=bound, relative=True),
        backward=BoundedRows(bound=GRADIENT_BOUND, relative="rms", dither=0),
    )


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("plain", "pooled", _exact),
        Method("fp16", "pooled", _cast("fp16")),
        Method("int8", "pooled", _cast("int8")),
        Method("rows_fp32", "rows", _exact),
        Method("sc24", "pooled", _sc24),
        Method("laconic", "rows", _laconic, coded_ids=True),
    )
}

PAIRWISE: dict[str, Method] = {
    f"{name}_pairwise": replace(METHODS[name], name=f"{name}_pairwise", pairwise=True)
    for name in ("plain", "laconic")
}


def find_method(name: str) -> Method:
    """Return a method by name."""
    known = {**METHODS, **PAIRWISE}
    if name not in known:
        raise ConfigError(f"bench: no such method {name!r} (known: {', '.join(known)})")
    return known[name]
