"""The page of ``laconic tune``: heat maps that show what was measured, and the choice."""

from __future__ import annotations

import html
import json
import re

import plotly.graph_objects
import pytest
from plotly.offline import get_plotlyjs

from laconic.adapt.tune import result as module
from laconic.adapt.tune.result import TuneResult
from laconic.errors import FormatError
from laconic.numerals import NONE, times
from laconic.report import read_any, render, write_report
from tests.report.sample import sample

HOSTILE = "</script><script>alert('1')</script><img src=x onerror=alert(2)> & \"'"


def documented():
    """The sample in the documentation of the format: rows bounded by 0.03, gradients exact."""
    return json.loads(module.__doc__.split("::", 1)[1].split("Bytes are those", 1)[0])


def page_of(data):
    return render(TuneResult.model_validate(data)).replace(get_plotlyjs(), "")


def figures(page):
    found = re.findall(r'<script type="application/json" data-chart="([\w-]+)">(.*?)</script>', page)
    return {name: json.loads(text) for name, text in found}


def test_a_cell_has_its_harm_as_color_and_its_ratio_as_text():
    (heat,) = figures(page_of(documented()))["rows"]["data"]
    assert heat["text"] == [["", times(4), times(5)]]
    assert heat["z"][0][0] is None
    assert heat["z"][0][1:] == pytest.approx([-5, -4.0457574905606755], rel=1e-12)


def test_a_bound_that_was_not_offered_is_in_brackets():
    (heat,) = figures(page_of(documented()))["gradients"]["data"]
    assert heat["text"] == [["", f"({times(20 / 3)})"]]
    assert "not offered" in heat["customdata"][0][1]


def test_the_choice_is_framed():
    found = figures(page_of(documented()))
    columns = {name: found[name]["layout"]["xaxis"]["ticktext"] for name in ("rows", "gradients")}
    framed = {
        name: columns[name][round(frame["x0"] + 0.5)]
        for name in columns
        for frame in found[name]["layout"]["shapes"]
    }
    assert framed == {"rows": "0.03", "gradients": "exact"}


def test_the_index_is_drawn_and_the_reasons_are_listed():
    page = page_of(documented())
    (heat,) = figures(page)["homogenization"]["data"]
    assert heat["z"] == [[1.0, 0.98]]
    assert "5.0x fewer bytes; ..." in page
    assert "+0.009 %</strong> <span>loss</span>" in page


def test_plotly_accepts_every_figure_and_every_color_is_in_the_style_sheet():
    page = page_of(documented())
    found = figures(page)
    assert list(found) == ["rows", "gradients", "homogenization"]
    light, dark = re.findall(r":root \{(.*?)\}", page, re.DOTALL)
    for figure in found.values():
        text = json.dumps(figure)
        plotly.graph_objects.Figure(json.loads(re.sub(r'"--[\w-]+"', '"red"', text)))
        for name in re.findall(r'"(--[\w-]+)"', text):
            assert f"{name}:" in light
            assert f"{name}:" in dark


def test_tables_that_harm_nothing_and_send_nothing_have_a_page():
    data = documented()
    for direction in (data["tables"][0]["forward"], data["tables"][0]["backward"]):
        zeros = [0.0] * len(direction["bounds"])
        direction |= {"bytes_sent": zeros, "harm": zeros, "error": zeros, "bytes_exact": 0}
        direction["chosen"] |= {"bytes_sent": 0, "harm": 0}
    (heat,) = figures(page_of(data))["rows"]["data"]
    assert heat["text"] == [["", NONE, NONE]]


def test_hostile_names_are_text():
    data = documented()
    data["title"] = data["tables"][0]["name"] = data["tables"][0]["forward"]["chosen"]["reason"] = HOSTILE
    page = page_of(data)
    assert "<script>alert" not in page
    assert "<img" not in page
    named = figures(page)["rows"]["layout"]["yaxis"]["ticktext"][0]
    assert html.unescape(named) == HOSTILE[:23] + "…"


def test_only_the_tables_with_most_traffic_are_drawn_but_all_are_listed():
    data = documented()
    table = data["tables"][0]
    data["tables"] = [
        {**table, "name": f"t{i}", "forward": {**table["forward"], "bytes_exact": 10**5 + i}}
        for i in range(70)
    ]
    page = page_of(data)
    assert "The 60 tables with most traffic of 70." in page
    assert figures(page)["rows"]["layout"]["yaxis"]["ticktext"] == [f"t{i}" for i in range(10, 70)]
    assert all(f'<th scope="row">t{i}</th>' in page for i in range(70))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d.pop("loss"), "loss: required, but not given"),
        (lambda d: d.update(tables=[]), "tables: expected at least one, got none"),
        (
            lambda d: d["tables"][0]["forward"].update(harm=[0.1]),
            "tables.0.forward: harm: expected 2 values, one for each bound, got 1",
        ),
        (
            lambda d: d["tables"][0]["forward"]["chosen"].update(bound=0.5),
            "tables.0.forward: chosen.bound: expected one of (0.01, 0.03), got 0.5",
        ),
        (
            lambda d: d["tables"][0].update(homogenization=[1.0]),
            "tables.0: homogenization: expected 2 values, one for each bound of rows, got 1",
        ),
    ],
)
def test_a_file_that_is_no_result_is_refused_with_the_field(tmp_path, damage, message):
    data, path = documented(), tmp_path / "tune.json"
    damage(data)
    path.write_text(json.dumps(data))
    with pytest.raises(FormatError) as error:
        read_any(path)
    assert str(error.value) == f"{path}: {message}"


def test_tables_with_other_bounds_than_the_first_are_refused():
    data = documented()
    other = json.loads(json.dumps(data["tables"][0]))
    other["name"], other["backward"]["bounds"] = "other", [0.7]
    data["tables"].append(other)
    with pytest.raises(
        ValueError, match="expected the same bounds for all, got others for 'other' than for 'c_user'"
    ):
        TuneResult.model_validate(data)


def test_a_report_is_written_of_either_kind_of_file(tmp_path):
    tuned, compared, page = tmp_path / "tune.json", tmp_path / "bench.json", tmp_path / "page.html"
    tuned.write_text(json.dumps(documented()))
    compared.write_text(json.dumps(sample()))
    for path, title in ((tuned, "run.toml"), (compared, sample()["title"])):
        write_report(read_any(path), page)
        assert f"<h1>{title}</h1>" in page.read_text()
