"""What ``laconic tune`` found: a JSON file, and these classes.

::

    {
      "kind": "tune",
      "title": "run.toml",
      "ranks": 4, "steps": 256, "loss": 0.4812, "budget": 0.0005,
      "lower_bound": 80900,
      "tables": [
        {"name": "c_user", "rows": 92108, "paper_class": "large", "homogenization": [1.0, 0.98],
         "forward": {
           "bounds": [0.01, 0.03], "offered": [true, true], "bytes_sent": [51200, 40960],
           "bytes_exact": 204800, "error": [0.001, 0.009], "harm": [0.00001, 0.00009],
           "sensitivity": 0.0095, "sensitivity_se": 0.0005,
           "chosen": {"bound": 0.03, "bytes_sent": 40960, "harm": 0.00009,
                      "reason": "5.0x fewer bytes; ..."}},
         "backward": {
           "bounds": [0.5], "offered": [false], "bytes_sent": [30720], "bytes_exact": 204800,
           "error": [0.2], "harm": [0.0001], "sensitivity": 0.0005, "sensitivity_se": 0.0,
           "chosen": {"bound": null, "bytes_sent": 204800, "harm": 0.0, "reason": "exact; ..."}}}
      ]
    }

Bytes are those of all ranks in one step. Errors are mean squares beside the mean square of what is
sent. Harm is the predicted increase of the loss, as a share of it, and ``budget`` the most that all
choices together may do.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from laconic.adapt.tune.curves import REFERENCE_BOUND
from laconic.config import Bytes, Count, Settings, Text

__all__ = ["ChosenBound", "TuneResult", "TunedDirection", "TunedTable"]


class ChosenBound(Settings):
    """What one direction of a table travels as, and why."""

    bound: float | None
    """The bound that was chosen; null where it travels exactly."""

    bytes_sent: Bytes
    """Bytes that all ranks send in a step."""

    harm: float
    """Predicted increase of the loss, as a share of it."""

    reason: Text
    """What the choice saves and harms, and what the next looser bound would."""


class TunedDirection(Settings):
    """Rows or gradients of a table, at every bound that was measured."""

    bounds: tuple[float, ...]
    """Of rows, relative to their range; of gradients, to their root mean square."""

    offered: tuple[bool, ...]
    """Whether the bound could be chosen; not where the error rivals the signal."""

    bytes_sent: tuple[Bytes, ...]
    bytes_exact: Bytes
    error: tuple[float, ...]
    harm: tuple[float, ...]

    sensitivity: float
    """Harm of an error of 1."""

    sensitivity_se: float
    """Standard error of it."""

    chosen: ChosenBound

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.chosen.bound is not None and self.chosen.bound not in self.bounds:
            raise ValueError(f"chosen.bound: expected one of {self.bounds}, got {self.chosen.bound!r}")
        for name in ("offered", "bytes_sent", "error", "harm"):
            if len(getattr(self, name)) != len(self.bounds):
                raise ValueError(
                    f"{name}: expected {len(self.bounds)} values, one for each bound, got {len(getattr(self, name))}"
                )
        return self


class TunedTable(Settings):
    """Both directions of a table."""

    name: Text
    rows: int = Field(ge=1)

    paper_class: Literal["large", "medium", "small"]
    """Of the SC'24 paper's three bounds, the one it would get by its homogenization index."""

    homogenization: tuple[float, ...]
    """Distinct rows after / before quantizing, at each bound of ``forward``."""

    forward: TunedDirection
    """Rows."""

    backward: TunedDirection
    """Gradients."""

    @property
    def homogenization_index(self) -> float:
        """Homogenization at the bound where the SC'24 paper's classes are told apart."""
        return self.homogenization[self.forward.bounds.index(REFERENCE_BOUND)]

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if len(self.homogenization) != len(self.forward.bounds):
            raise ValueError(
                f"homogenization: expected {len(self.forward.bounds)} values, one for each bound of rows, "
                f"got {len(self.homogenization)}"
            )
        return self


class TuneResult(Settings):
    """All tables, and what was measured to choose for them."""

    kind: Literal["tune"] = "tune"
    title: Text

    ranks: Count
    steps: Count
    """Number of steps that were trained before measuring."""

    loss: float
    """Loss of unseen batches after these steps."""

    budget: float
    lower_bound: float
    """Bytes below which no choice within the budget can get."""

    tables: tuple[TunedTable, ...]

    @model_validator(mode="before")
    @classmethod
    def _from_before(cls, tree: Any) -> Any:
        """Read files that have what is gone, unless they were measured along principal axes."""
        if not isinstance(tree, dict):
            return tree
        if tree.get("axes") == "principal":
            raise ValueError("it was measured along principal axes, which are gone; run laconic tune again")
        return {name: value for name, value in tree.items() if name not in ("axes", "slope")}

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if not self.tables:
            raise ValueError("tables: expected at least one, got none")
        first = self.tables[0]
        for table in self.tables:
            if (table.forward.bounds, table.backward.bounds) != (first.forward.bounds, first.backward.bounds):
                raise ValueError(
                    f"tables: expected the same bounds for all, got others for {table.name!r} than for {first.name!r}"
                )
        return self

    @property
    def directions(self) -> list[TunedDirection]:
        """Both directions of all tables."""
        return [direction for table in self.tables for direction in (table.forward, table.backward)]

    @property
    def bytes_exact(self) -> float:
        """Bytes a step of all ranks before compression."""
        return sum(direction.bytes_exact for direction in self.directions)

    @property
    def bytes_sent(self) -> float:
        """Bytes a step of all ranks with the chosen bounds."""
        return sum(direction.chosen.bytes_sent for direction in self.directions)

    @property
    def harm(self) -> float:
        """Predicted increase of the loss by all choices, as a share of it."""
        return sum(direction.chosen.harm for direction in self.directions)
