"""One self-contained HTML page from a result file; ``result`` and the files called ``*_result`` have the formats."""

from laconic.report.page import render
from laconic.report.quantize_page import render_quantized
from laconic.report.quantize_result import QuantizeResult, read_quantize_result
from laconic.report.result import Method, Point, Result, Table, read_result
from laconic.report.run_page import render_run
from laconic.report.run_result import RunResult, read_run_result
from laconic.report.simulate_page import render_simulated
from laconic.report.simulate_result import SimulateResult, read_simulate_result
from laconic.report.tune_page import render_tuned
from laconic.report.tune_result import TuneResult, read_tune_result
from laconic.report.write import read_any, write_report

__all__ = [
    "Method",
    "Point",
    "QuantizeResult",
    "Result",
    "RunResult",
    "SimulateResult",
    "Table",
    "TuneResult",
    "read_any",
    "read_quantize_result",
    "read_result",
    "read_run_result",
    "read_simulate_result",
    "read_tune_result",
    "render",
    "render_quantized",
    "render_run",
    "render_simulated",
    "render_tuned",
    "write_report",
]
