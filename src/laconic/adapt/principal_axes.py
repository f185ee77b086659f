"""Axes that follow the tables: the directions in which looked-up rows are long, found anew as training goes on.

Which directions these are is an accident of the first weights, so they can not be tuned beforehand; but they settle early. They are
looked for after 8 steps, 16, 32 and so on, from a batch's rows on all ranks, and hold until the next time.
"""

from __future__ import annotations

import base64
from typing import Any

from laconic.codecs.axes import Axes

__all__ = ["PrincipalAxes"]

_FIRST = 8  # steps: before, rows are as they were drawn, and all directions alike


class PrincipalAxes:
    """The axes in force; none before the first look."""

    def __init__(self) -> None:
        self.axes: Axes | None = None

    @staticmethod
    def due(step: int) -> bool:
        """Whether to look after so many steps: a function of the step, so a resumed run agrees."""
        return step >= _FIRST and step & (step - 1) == 0

    def take(self, axes: Axes) -> None:
        """Let these be in force."""
        self.axes = axes

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs, as JSON."""
        if self.axes is None:
            return {}
        return {"dim": self.axes.dim, "data": base64.b64encode(self.axes.data).decode()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what ``state`` returned."""
        self.axes = Axes(int(state["dim"]), base64.b64decode(state["data"])) if state else None
