"""One self-contained HTML page from a result file; ``result``, ``tune_result`` and ``quantize_result`` have the formats."""

from laconic.report.page import render
from laconic.report.quantize_page import render_quantized
from laconic.report.quantize_result import QuantizeResult, read_quantize_result
from laconic.report.result import Method, Point, Result, Table, read_result
from laconic.report.tune_page import render_tuned
from laconic.report.tune_result import TuneResult, read_tune_result
from laconic.report.write import read_any, write_report

__all__ = [
    "Method",
    "Point",
    "QuantizeResult",
    "Result",
    "Table",
    "TuneResult",
    "read_any",
    "read_quantize_result",
    "read_result",
    "read_tune_result",
    "render",
    "render_quantized",
    "render_tuned",
    "write_report",
]
