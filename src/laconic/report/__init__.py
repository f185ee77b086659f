"""Reports: one self-contained HTML page from a result file, or from the metrics of a run.

Begin with ``read_any`` and ``render`` below. Every command has its page: ``tune_page``,
``quantize_page``, ``simulate_page``, ``access_page`` (``laconic profile``), ``run_page`` (training)
and ``comparison_page`` (methods side by side). ``charts`` has what they share.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from laconic.adapt.tune.result import TuneResult
from laconic.config import read_json
from laconic.errors import ConfigError
from laconic.files import write_whole
from laconic.page import Page
from laconic.plan.access.access import Access
from laconic.plan.simulate_result import SimulateResult
from laconic.quantize.formats.result import QuantizeResult
from laconic.report.access_page import access_page
from laconic.report.comparison_page import comparison_page
from laconic.report.quantize_page import quantize_page
from laconic.report.result import Comparison, Method, Point, TableFigures
from laconic.report.run_page import RunRecord, read_run_result, run_page
from laconic.report.simulate_page import simulate_page
from laconic.report.tune_page import tune_page

__all__ = [
    "AnyResult",
    "Comparison",
    "Method",
    "Point",
    "TableFigures",
    "read_any",
    "render",
    "write_report",
]

AnyResult = QuantizeResult | Comparison | RunRecord | SimulateResult | TuneResult
"""A result that a file can hold."""

_KINDS: dict[Any, type[QuantizeResult | Comparison | SimulateResult | TuneResult]] = {
    "quantize": QuantizeResult,
    "simulate": SimulateResult,
    "tune": TuneResult,
}
"""Results by their field ``kind``; a comparison has none."""

_PAGES: dict[type, Callable[[Any], Page]] = {
    Access: access_page,
    QuantizeResult: quantize_page,
    Comparison: comparison_page,
    RunRecord: run_page,
    SimulateResult: simulate_page,
    TuneResult: tune_page,
}


def read_any(path: str | Path) -> AnyResult:
    """Read a result file, or the metrics of a run; FormatError says what is wrong with it."""
    if Path(path).is_dir() or Path(path).suffix == ".jsonl":
        return read_run_result(path)
    try:
        tree = json.loads(Path(path).read_bytes())
    except ValueError:
        tree = None  # reading it as a comparison says where it is not JSON
    kind = tree.get("kind") if isinstance(tree, dict) else None
    return read_json(path, _KINDS.get(kind if isinstance(kind, str) else None, Comparison))


def render(result: AnyResult | Access) -> str:
    """Lay out the page of a result as HTML."""
    return _PAGES[type(result)](result).html()


def write_report(result: AnyResult | Access, path: str | Path) -> None:
    """Write the page of a result, whole or not at all; an existing file is replaced."""
    path, page = Path(path), render(result)
    if not path.parent.is_dir():
        raise ConfigError(f"report: no folder {str(path.parent)!r} to write into; make it first")
    write_whole(path, page)
