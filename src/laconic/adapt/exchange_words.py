"""The words that settings had before ``[compression]``, and what they are now.

A run's file with such a word is refused, with the word that took its place. Policy files of
``laconic tune`` with such words are translated: nobody wrote them by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["MOVED", "compression_of"]

_NOW = {
    "policy": "compression.policy",
    "exchange.kind": "compression.rows and compression.gradients",
    "exchange.bound": "compression.rows.bound",
    "exchange.relative": "compression.rows.relative_to",
    "exchange.rounding": "compression.rows.rounding",
    "exchange.gradient_bound": "compression.gradients.bound",
    "exchange.cast": "compression.rows and compression.gradients",
    "exchange.coded_ids": "compression.ids",
    "exchange.warmup_steps": "compression.warmup",
    "exchange.decay": "compression.decay",
    "exchange.guard": "compression.budget",
    "exchange.economy": "compression.economy",
    "exchange.rules": "compression.tables",
    "dense.send": "compression.dense",
    "dense.bound": "compression.dense.bound",
    "dense.keep": "compression.dense.keep",
    "dense.refresh": "compression.dense.refresh",
    "dense.warmup_steps": "compression.warmup",
    "dense.rate": "dense.lr",
    "embeddings.rate": "embeddings.lr",
    "train.rate_warmup": "train.lr_warmup",
}

MOVED: Mapping[str, str] = {
    **{old: f"is {now} now" for old, now in _NOW.items()},
    "exchange.axes": "is gone: rows are rounded along the dimensions they have; remove the line",
}
"""What to say of each word that was a setting of a run, by its dotted name."""

_SAME = {
    "coded_ids": "ids",
    "warmup_steps": "warmup",
    "decay": "decay",
    "economy": "economy",
}


def compression_of(exchange: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree of ``[compression]`` that means what a tree of ``[exchange]`` meant.

    ``ValueError`` for what is gone. Words that it never had come back as they are, to be refused.
    """
    given = dict(exchange)
    if given.pop("axes", "own") == "principal":
        raise ValueError(
            "its bounds are of coordinates along principal axes, which are gone; run laconic tune again"
        )
    found: dict[str, Any] = {new: given.pop(old) for old, new in _SAME.items() if old in given}
    if "guard" in given:
        found |= {name: value for name, value in given.pop("guard").items() if value is not None}
    tables: dict[str, Any] = {}
    for rule in given.pop("rules", ()):
        tables.pop(rule.get("tables"), None)  # a pattern that comes again counts from its last place on
        tables[rule.get("tables", "*")] = _table(rule)
    found |= {"tables": tables} if tables else {}
    found |= {name: words for name, words in _directions(given).items() if words}
    return {**found, **given}


def _directions(given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Take what is said of rows and gradients out of ``given``."""
    kind, cast = given.pop("kind", None), given.pop("cast", "fp16")
    rows: dict[str, Any] = {name: given.pop(name) for name in ("bound", "rounding") if name in given}
    gradients = {"bound": given.pop("gradient_bound")} if "gradient_bound" in given else {}
    if "relative" in given:
        rows["relative_to"] = "range" if given.pop("relative") else "none"
    if kind is not None:
        method = cast if kind == "cast" else kind
        if method != "bounded":  # bounds that nothing read are left out
            rows, gradients = {}, {}
        rows["method"] = gradients["method"] = method
    return {"rows": rows, "gradients": gradients}


def _table(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return what one rule says of its tables."""
    unknown = set(rule) - {"tables", "exact", "bound", "rounding", "gradient_bound"}
    if unknown:
        raise ValueError(f"exchange.rules: no such setting {min(unknown)!r}")
    exact = rule.get("exact", False)
    rows = {name: rule[name] for name in ("bound", "rounding") if rule.get(name) is not None}
    gradients = {} if rule.get("gradient_bound") is None else {"bound": rule["gradient_bound"]}
    both = {
        "rows": "exact" if exact in (True, "rows") else rows,
        "gradients": "exact" if exact in (True, "gradients") else gradients,
    }
    return {name: words for name, words in both.items() if words}
