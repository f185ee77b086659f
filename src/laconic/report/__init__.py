"""One self-contained HTML page from a result file; see ``laconic.report.result`` for the format."""

from laconic.report.page import render, write_report
from laconic.report.result import Method, Point, Result, Table, read_result

__all__ = ["Method", "Point", "Result", "Table", "read_result", "render", "write_report"]
