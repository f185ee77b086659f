"""Result files become pages."""

from __future__ import annotations

import json
from pathlib import Path

from laconic.errors import ConfigError
from laconic.files import write_whole
from laconic.report.page import render
from laconic.report.quantize_page import render_quantized
from laconic.report.quantize_result import QuantizeResult, read_quantize_result
from laconic.report.result import Result, read_result
from laconic.report.run_page import render_run
from laconic.report.run_result import RunResult, read_run_result
from laconic.report.simulate_page import render_simulated
from laconic.report.simulate_result import SimulateResult, read_simulate_result
from laconic.report.tune_page import render_tuned
from laconic.report.tune_result import TuneResult, read_tune_result

__all__ = ["read_any", "write_report"]


AnyResult = QuantizeResult | Result | RunResult | SimulateResult | TuneResult


def read_any(path: str | Path) -> AnyResult:
    """Read a result file of a comparison or of one of the commands, or the metrics of a run; FormatError says what is wrong."""
    if Path(path).is_dir() or Path(path).suffix == ".jsonl":
        return read_run_result(path)
    try:
        tree = json.loads(Path(path).read_bytes())
    except ValueError:
        return read_result(path)  # says where it is not JSON
    kind = tree.get("kind") if isinstance(tree, dict) else None
    if kind == "simulate":
        return read_simulate_result(path)
    if kind == "quantize":
        return read_quantize_result(path)
    return read_tune_result(path) if kind == "tune" else read_result(path)


def write_report(result: AnyResult, path: str | Path) -> None:
    """Write the page, whole or not at all; a file that is there is replaced."""
    path = Path(path)
    if isinstance(result, SimulateResult):
        page = render_simulated(result)
    elif isinstance(result, RunResult):
        page = render_run(result)
    elif isinstance(result, QuantizeResult):
        page = render_quantized(result)
    else:
        page = render_tuned(result) if isinstance(result, TuneResult) else render(result)
    if not path.parent.is_dir():
        raise ConfigError(f"report: no folder {str(path.parent)!r} to write into; make it first")
    write_whole(path, page)
