"""The result of comparing methods of training: a JSON file, and these classes.

::

    {
      "title": "DLRM on four hosts, 1 Gbit/s",
      "machine": {"cpu": "...", "cores": "2", "torch": "2.13.0", "laconic": "0.1.0"},
      "setting": {"hosts": 4, "rate_mbit": 1000, "data": "synthetic", "model": "DLRM", "dim": 64},
      "methods": [
        {"name": "plain", "step_ms": [312.5, 309.1], "communication_share": 0.81,
         "bytes_forward": 13631488, "bytes_forward_before": 13631488,
         "bytes_backward": 13631488, "bytes_backward_before": 13631488,
         "bytes_ids": 425984, "bytes_ids_before": 425984,
         "bytes_dense": 2105344, "bytes_dense_before": 2105344,
         "auc": 0.7921, "log_loss": 0.4583,
         "curve": [{"step": 100, "seconds": 31.2, "samples": 819200, "loss": 0.512, "auc": null}]}
      ],
      "tables": [
        {"name": "C1", "rows": 1460, "forward": "BoundedRows(0.01)", "backward": "Cast(float16)",
         "bound": 0.01, "bytes_forward_before": 524288, "bytes_forward_after": 40213,
         "bytes_backward_before": 524288, "bytes_backward_after": 262144}
      ]
    }

The first method is what the others are compared with; the last is the one the page speaks of on
top. Bytes are averages for one step and one rank. NaN and null both mean: not defined, or not
measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from laconic.config import Bytes, Count, Maybe, Settings, Text

__all__ = ["Comparison", "Method", "Point", "TableFigures", "null_changes", "ratio", "seed_changes"]


class Point(Settings):
    """A point of a training curve."""

    step: Count
    """Number of steps that were done."""

    seconds: float = Field(ge=0)
    """Wall time of training up to here, in seconds; evaluation is not included."""

    samples: Count
    """Number of samples seen by all ranks."""

    loss: Maybe
    """Mean log loss on training samples since the point before."""

    auc: Maybe = None
    """AUC on the evaluation set; null at points where nothing was evaluated."""


class Method(Settings):
    """Figures of one method of training."""

    name: Text
    step_ms: tuple[Annotated[float, Field(gt=0)], ...] = Field(min_length=1)
    """Wall time of each measured step in milliseconds, without warm-up."""

    communication_share: float = Field(ge=0, le=1)
    """Share of a step beyond the time of the same batch on one rank that sends nothing."""

    bytes_forward: Bytes
    """Bytes of embedding rows sent to those who looked them up, per step and rank."""

    bytes_forward_before: Bytes
    """The same before compression."""

    bytes_backward: Bytes
    """Bytes of gradients of rows sent back to their owners, per step and rank."""

    bytes_backward_before: Bytes
    """The same before compression."""

    bytes_ids: Bytes
    """Bytes of row numbers sent to owners, per step and rank."""

    bytes_ids_before: Bytes
    """The same before compression."""

    bytes_dense: Bytes
    """Bytes of gradients of the dense layers, per step and rank."""

    bytes_dense_before: Bytes
    """The same before compression."""

    auc: Maybe = None
    """AUC on the evaluation set after training; the mean where there are several seeds."""

    log_loss: Maybe = None
    """Log loss on the evaluation set after training; the mean where there are several seeds."""

    seed_auc: tuple[float, ...] = ()
    """AUC of each seed, where there are several; all methods have the same seeds in order."""

    null_auc: tuple[float, ...] = ()
    """AUC of each seed from first weights that differ by a millionth: how far two runs are apart
    for no reason. Empty where that was not tried."""

    curve: tuple[Point, ...] = ()
    """Training curve; of several seeds it has the mean loss and AUC, and the first's seconds."""

    @property
    def median_ms(self) -> float:
        """Median time of a step in milliseconds, which the page calls the time of a step."""
        return statistics.median(self.step_ms)

    @property
    def bytes_total(self) -> float:
        """All bytes that one rank sends in a step."""
        return self.bytes_forward + self.bytes_backward + self.bytes_ids + self.bytes_dense


class TableFigures(Settings):
    """Bytes of one table before and after compression."""

    name: Text
    rows: int = Field(ge=1)
    forward: Text
    """Codec of rows, as text."""

    backward: Text
    """Codec of gradients, as text."""

    bound: Maybe = Field(None, ge=0)
    """Absolute error bound of rows; null where they are exact, or bounded in another way."""

    bytes_forward_before: Bytes
    bytes_forward_after: Bytes
    bytes_backward_before: Bytes
    bytes_backward_after: Bytes

    @property
    def ratios(self) -> tuple[float | None, float | None]:
        """Compression ratios of rows and of gradients; None where nothing was sent."""
        return (
            ratio(self.bytes_forward_before, self.bytes_forward_after),
            ratio(self.bytes_backward_before, self.bytes_backward_after),
        )


class Comparison(Settings):
    """A comparison of methods on one machine and in one setting."""

    title: Text
    machine: dict[str, str] = Field(default_factory=dict)
    setting: dict[str, str | int | float] = Field(default_factory=dict)
    methods: tuple[Method, ...] = Field(min_length=1)
    tables: tuple[TableFigures, ...] = ()
    """Figures of each table under the last method."""

    @model_validator(mode="after")
    def _seeds_are_the_same(self) -> Self:
        counts = sorted({len(method.seed_auc) for method in self.methods})
        if len(counts) > 1:
            raise ValueError(f"methods: expected as many seed_auc in each, got {counts}")
        return self

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        for kind, members in (("methods", self.methods), ("tables", self.tables)):
            names = [member.name for member in members]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise ValueError(f"{kind}: names must differ, got {twice!r} twice")
        return self


def seed_changes(methods: Sequence[Method]) -> list[float]:
    """Return the AUC of the last method less that of the first, by seed; empty for one seed."""
    first, last = methods[0].seed_auc, methods[-1].seed_auc
    return [b - a for a, b in zip(first, last, strict=True)] if len(first) > 1 < len(methods) else []


def null_changes(method: Method) -> list[float]:
    """Return the AUC of a method's runs from nearly the same weights less its own, by seed."""
    return [null - own for own, null in zip(method.seed_auc, method.null_auc, strict=False)]


def ratio(before: float, after: float) -> float | None:
    """Return ``before / after``; None where either is 0."""
    return before / after if before and after else None
