"""One self-contained HTML page from a result; ``result`` and ``run_page`` have formats of files, producers the others."""

from laconic.report.result import Method, Point, Result, Table
from laconic.report.write import AnyResult, read_any, render, write_report

__all__ = ["AnyResult", "Method", "Point", "Result", "Table", "read_any", "render", "write_report"]
