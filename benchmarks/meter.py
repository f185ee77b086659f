"""Progress of a benchmark whose steps differ in length by a factor of ten thousand."""

from __future__ import annotations

from rich.progress import Progress


class Meter:
    """Percent of the work that is done, shown by Rich if somebody looks."""

    def __init__(self, work: float, progress: Progress | None) -> None:
        self._percent = 100 / work
        self._progress = progress
        self._task = progress.add_task("", total=100) if progress else None

    def show(self, what: str) -> None:
        """Say what is under way."""
        self._update(what, 0)

    def advance(self, work: float, what: str) -> None:
        """Count work as done."""
        self._update(what, work * self._percent)

    def _update(self, what: str, percent: float) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=what, advance=percent)
