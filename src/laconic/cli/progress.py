"""Progress bars: for work that says what part it begins with, and for several kinds of work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["parts_bar", "work_bars"]


@contextmanager
def parts_bar(console: Console, parts: int) -> Iterator[Callable[[str], None]]:
    """Show a bar of so many parts; what it gives is called with a line at the beginning of each."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=parts)
        done = iter(range(parts))
        yield lambda text: progress.update(task, description=text, completed=next(done))


@contextmanager
def work_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Give a function that is told what is being done, and how much of how much of it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    bars = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*bars, console=Console(stderr=True), transient=True) as shown:

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = shown.add_task(what)
            shown.update(tasks[what], completed=done, total=total)

        yield tell
