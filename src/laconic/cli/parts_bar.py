"""A bar for work that says what part it begins with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["parts_bar"]


@contextmanager
def parts_bar(console: Console, parts: int) -> Iterator[Callable[[str], None]]:
    """Show a bar of so many parts; what it gives is called with a line at the beginning of each."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=parts)
        done = iter(range(parts))
        yield lambda text: progress.update(task, description=text, completed=next(done))
