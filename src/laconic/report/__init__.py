"""One self-contained HTML page from a result; ``result`` and ``run_page`` have formats of files, producers the others."""

from laconic.report.result import Comparison, Method, Point, TableFigures
from laconic.report.write import AnyResult, read_any, render, write_report

__all__ = ["AnyResult", "Comparison", "Method", "Point", "TableFigures", "read_any", "render", "write_report"]
