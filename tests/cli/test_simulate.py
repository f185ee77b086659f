"""``laconic simulate``: a table, JSON, and a page."""

from __future__ import annotations

import json
import math
import re

import pytest
from plotly.offline import get_plotlyjs
from typer.testing import CliRunner

from laconic.cli import app
from laconic.errors import ConfigError, FormatError
from laconic.plan import simulate_result as module
from laconic.plan.simulate import paying_spans
from laconic.plan.simulate_result import SimulateResult
from laconic.report import read_any, render

FEW = ["--set", "ranks=[8, 64]", "--set", "gbps=[1, 400]", "--set", "dim=16", "--set", "rows=[20, 3000]"]


def run(*arguments: str):
    return CliRunner().invoke(app, ["simulate", *arguments])


def test_a_table_a_file_and_a_page(tmp_path):
    result = run(*FEW, "--json", str(tmp_path / "s.json"), "--report", str(tmp_path / "s.html"))
    assert result.exit_code == 0, result.output
    assert re.search(r"64 +400 ", result.output)
    written = json.loads((tmp_path / "s.json").read_text())
    assert [(c["ranks"], c["gbps"]) for c in written["cells"]] == [(8, 1), (8, 400), (64, 1), (64, 400)]
    assert written["cells"][0]["best_ms"] <= written["cells"][0]["off_ms"]
    assert [need["ranks"] for need in written["needs"]] == [8, 64]
    assert re.search(r"64 +[\d.]+ kB +139 +[\d.]+ MB", result.output)
    page = (tmp_path / "s.html").read_text()
    assert page == render(read_any(tmp_path / "s.json"))  # what laconic report makes of the file


def test_a_scenario_file_and_json_alone_on_stdout(tmp_path):
    (tmp_path / "s.toml").write_text("ranks = [4]\ngbps = [10]\ndim = 16\nrows = [50]\n")
    result = run(str(tmp_path / "s.toml"), "--set", "batch=64", "--json", "-")
    assert json.loads(result.stdout)["cells"][0]["ranks"] == 4


def test_errors_come_before_the_work(tmp_path):
    for arguments, message in (
        (["--report", str(tmp_path / "no" / "s.html")], "--report: no folder"),
        (["--json", str(tmp_path / "no" / "s.json")], "--json: no folder"),
        (["--set", "rank=[1]"], "did you mean 'ranks'"),
    ):
        result = run(*FEW, *arguments)
        assert isinstance(result.exception, ConfigError)
        assert message in str(result.exception)


def documented():
    """The sample in the documentation of the format."""
    return json.loads(module.__doc__.split("::", 1)[1].split("``gains``", 1)[0])


def figures(data):
    page = render(SimulateResult.model_validate(data)).replace(get_plotlyjs(), "")
    found = re.findall(r'<script type="application/json" data-chart="([\w-]+)">(.*?)</script>', page)
    return page, {name: json.loads(text) for name, text in found}


def test_maps_show_gains_and_the_chart_shows_where_they_end():
    _, drawn = figures(documented())
    assert [drawn[f"gain-{number}"]["data"][0]["text"] for number in (0, 1)] == [[["1.03"]], [["2.62"]]]
    assert "alone" in drawn["gain-1"]["data"][0]["customdata"][0][0]
    dedup, _, dense, _ = drawn["stops"]["data"]
    assert (dedup["y"], dense["y"]) == (
        [1.0],
        [1],
    )  # where it ends; the largest bandwidth, for one that does not
    assert (dedup["marker"]["symbol"], dense["marker"]["symbol"]) == (["circle"], ["triangle-up"])
    never = documented()
    never["stops"][0]["gbps"][0] = 0
    assert figures(never)[1]["stops"]["data"][0]["y"] == [None]


def with_gains(*gains):
    """A result of one method and one number of ranks, at bandwidths of 1, 10, 100, ... Gbit/s."""
    data = documented()
    (cell,) = data["cells"]
    cells = [
        cell | {"gbps": 10.0**n, "gains": [gain], "alone": [gain], "best": "dedup"}
        for n, gain in enumerate(gains)
    ]
    ends = paying_spans([10.0**n for n in range(len(gains))], gains)
    end = ends[-1][1] if ends else 0.0
    stops = [{"ranks": 8, "gbps": [None if end == math.inf else end]}]
    return data | {"methods": data["methods"][:1], "cells": cells, "stops": stops}


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ((1.2, 1.1, 1.1), "pays at all bandwidths that were simulated"),
        ((0.92, 0.98, 1.2), "pays from 13.7 Gbit/s on"),
        ((1.2, 0.92, 1.2), "pays below 4.77 Gbit/s, from 21 Gbit/s on"),
        ((0.92, 1.2, 0.92), "pays from 2.1 to 47.7 Gbit/s"),
        ((1.2, 1.1, 0.9), "pays below 28.2 Gbit/s"),
        ((0.92, 1.0, 0.99), "never pays"),
    ],
)
def test_the_chart_says_of_every_bandwidth_what_the_map_says(gains, words):
    page, drawn = figures(with_gains(*gains))
    ends, starts = drawn["stops"]["data"]
    assert words in ends["customdata"][0]
    assert drawn["gain-0"]["data"][0]["text"] == [[f"{gain:.2f}" for gain in gains]]
    later = gains[0] < 1.01 and max(gains) >= 1.01
    assert (starts["y"] != [None]) == later
    assert "it pays at all bandwidths" not in page


def test_names_are_shown_as_text():
    hostile = documented() | {"title": "<script>alert(1)</script>"}
    hostile["methods"][0][1] = "<img src=x>"
    page, _ = figures(hostile)
    assert "<script>alert(1)" not in page
    assert "<img src=x>" not in page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": [["one", "x"]]}, "cells: expected 1 gains, got 2"),
        ({"stops": [{"ranks": 8, "gbps": [1.0]}]}, "stops: expected 2 bandwidths in each"),
        ({"cells": []}, "cells: "),
        ({"extra": 1}, "extra: no such field"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, change, message):
    (tmp_path / "s.json").write_text(json.dumps(documented() | change))
    with pytest.raises(FormatError, match=message):
        read_any(tmp_path / "s.json")
