"""A table whose first column has names and whose others have figures."""

from __future__ import annotations

from rich.table import Table

__all__ = ["figures_table"]


def figures_table(title: str, *columns: str) -> Table:
    """Return an empty one."""
    table = Table(title=title, title_justify="left")
    for k, column in enumerate(columns):
        table.add_column(column, justify="right" if k else "left", no_wrap=True)
    return table
