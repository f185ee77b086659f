"""Results that earlier versions wrote are still read, whole, and still give a page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

from laconic.report import read_any, render

WRITTEN = Path(__file__).parent / "written_before"
GONE = {"slope"}
NEW = {"simulate": {"needs": []}}


@pytest.mark.parametrize(
    ("name", "charts", "shown"),
    [
        ("tune", ["rows", "gradients", "homogenization"], "<h2>Choices</h2>"),
        ("simulate", ["stops", "gain-0", "gain-1", "gain-2", "gain-3"], "<h2>Best choices</h2>"),
        ("quantize", ["pareto-size", "pareto-latency", "tables", "layers"], "<h2>Attempts</h2>"),
    ],
)
def test_a_result_is_read_whole_and_has_its_page(name, charts, shown):
    path = WRITTEN / f"{name}.json"
    result = read_any(path)
    written = json.loads(path.read_text())
    kept = {key: value for key, value in written.items() if key not in GONE}
    assert result.model_dump(mode="json") == kept | NEW.get(name, {})
    page = render(result).replace(get_plotlyjs(), "")
    assert re.findall(r'data-chart="([\w-]+)"', page) == charts
    assert shown in page


def test_metrics_of_a_run_have_their_page():
    page = render(read_any(WRITTEN / "metrics.jsonl")).replace(get_plotlyjs(), "")
    assert "<h1>written_before</h1>" in page
    assert re.findall(r'data-chart="([\w-]+)"', page) == ["loss", "ratio"]
    assert "0.74" in page
