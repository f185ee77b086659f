"""The page as a browser gets it."""

from __future__ import annotations

import html
import json
import os
import re
import stat
import subprocess
import sys

import plotly.graph_objects
import pytest
from plotly.offline import get_plotlyjs
from pydantic import ValidationError

from laconic.errors import ConfigError, FormatError
from laconic.numerals import bytes_text, change, milliseconds, times
from laconic.report import Comparison, read_any, render, write_report
from tests.report.sample import sample

HOSTILE = "</script><script>alert('1')</script><img src=x onerror=alert(2)> & \"'"


def page_of(data):
    """The page without Plotly's own code, which is not ours to test."""
    page = render(Comparison.model_validate(data))
    assert page.count(get_plotlyjs()) == 1
    return page.replace(get_plotlyjs(), "")


def figures(page):
    found = re.findall(r'<script type="application/json" data-chart="([\w-]+)">(.*?)</script>', page)
    return {name: json.loads(text) for name, text in found}


@pytest.fixture(scope="module")
def page():
    return page_of(sample())


def test_the_page_shows_every_method_and_table(page):
    data = sample()
    assert f"<h1>{data['title']}</h1>" in page
    for method in data["methods"]:
        assert f"</span> {method['name']}</th>" in page
    for table in data["tables"]:
        assert f'<th scope="row">{table["name"]}</th>' in page
        assert html.escape(table["backward"]) in page
    for fact in (*data["machine"].values(), "synthetic, Criteo-shaped", "2,048"):
        assert fact in page


def test_the_page_speaks_of_the_last_method_against_the_first(page):
    assert "<b>laconic</b> against <b>plain</b>" in page
    headline = re.search(r'class="headline">(.*?)</section>', page).group(1)
    assert re.findall(r"<strong>(.*?)</strong> <span>(.*?)</span>", headline) == [
        ("4.24\N{MULTIPLICATION SIGN}", "faster step"),
        ("13.0\N{MULTIPLICATION SIGN}", "fewer bytes sent"),
        ("\N{MINUS SIGN}0.00005", "AUC"),
    ]


def test_several_seeds_are_shown_one_by_one():
    data = sample()
    for method in data["methods"]:
        method["seed_auc"] = [0.70, 0.706]
    data["methods"][-1]["seed_auc"] = [0.699, 0.708]
    page = page_of(data)
    assert "<span>AUC, mean of 2 seeds</span>" in page
    shown = "laconic less plain, seed by seed: \N{MINUS SIGN}0.0010, +0.0020; their mean is +0.0005 with a "
    shown += "standard error of 0.0015. plain alone differs by 0.0060 from seed to seed."
    assert shown in page
    assert "one run a method" not in page


def test_methods_with_other_numbers_of_seeds_are_refused():
    data = sample()
    data["methods"][0]["seed_auc"] = [0.7, 0.8]
    with pytest.raises(ValidationError, match=r"methods: expected as many seed_auc in each, got \[0, 2\]"):
        Comparison.model_validate(data)


def test_a_method_that_is_worse_is_called_so():
    data = sample()
    data["methods"].reverse()
    page = page_of(data)
    assert "slower step" in page
    assert "more bytes sent" in page


def test_plotly_accepts_every_figure(page):
    found = figures(page)
    assert list(found) == ["step", "bytes", "auc-step", "auc-seconds", "loss-step", "loss-seconds", "tables"]
    for figure in found.values():
        uncolored = json.loads(re.sub(r'"--[\w-]+"', '"red"', json.dumps(figure)))
        plotly.graph_objects.Figure(uncolored)


def test_every_color_is_in_the_style_sheet_in_light_and_dark(page):
    used = {name for text in figures(page).values() for name in re.findall(r'"(--[\w-]+)"', json.dumps(text))}
    used |= set(re.findall(r"var\((--[\w-]+)\)", page))
    light, dark = re.findall(r":root \{(.*?)\}", page, re.DOTALL)
    for name in used:
        assert f"{name}:" in light
        assert f"{name}:" in dark


def test_bars_and_points_are_the_figures_of_the_result(page):
    data, found = sample(), figures(page)
    compute, communication = found["step"]["data"]
    shares = [c / (c + w) for c, w in zip(communication["x"], compute["x"], strict=True)]
    assert shares == pytest.approx([method["communication_share"] for method in data["methods"]])
    laconic = found["bytes"]["data"][-1]
    assert laconic["x"] == pytest.approx([0.64, 1.12, 0.112, 0.42])
    assert found["auc-seconds"]["data"][0]["y"] == [
        point["auc"] for point in data["methods"][0]["curve"] if point["auc"] is not None
    ]


def test_tables_are_sorted_by_ratio(page):
    def ratio(table):
        after = table["bytes_forward_after"] + table["bytes_backward_after"]
        return (table["bytes_forward_before"] + table["bytes_backward_before"]) / after

    expected = [table["name"] for table in sorted(sample()["tables"], key=ratio, reverse=True)]
    assert figures(page)["tables"]["layout"]["yaxis"]["ticktext"] == expected


def test_the_page_fetches_nothing(page):
    assert "default-src 'none'" in page
    assert re.findall(r"https?://|//\w+\.\w+|@import|url\(|<link|<iframe", page) == []
    assert re.findall(r"<[^>]+\s(?:src|href)=", page) == []


def test_hostile_names_are_text():
    data = sample()
    data["title"] = data["methods"][0]["name"] = data["tables"][0]["name"] = HOSTILE
    data["tables"][0]["forward"] = data["tables"][0]["backward"] = HOSTILE
    data["machine"][HOSTILE] = data["setting"][HOSTILE] = HOSTILE
    page = page_of(data)
    assert "<script>alert" not in page
    assert "<img" not in page
    assert page.count("</script>") == page_of(sample()).count("</script>")
    named = figures(page)["step"]["layout"]["yaxis"]["ticktext"][0]
    assert "<" not in named  # Plotly reads HTML, too
    assert html.unescape(named) == HOSTILE[:23] + "…"


def test_hundreds_of_tables_are_listed_and_the_largest_drawn():
    data = sample()
    table = data["tables"][2]
    data["tables"] = [{**table, "name": f"t{i}", "bytes_forward_before": 1000 + i} for i in range(300)]
    page = page_of(data)
    assert "The 40 tables with most traffic; 260 more are in the list below." in page
    assert set(figures(page)["tables"]["layout"]["yaxis"]["ticktext"]) == {f"t{i}" for i in range(260, 300)}
    assert all(f'<th scope="row">t{i}</th>' in page for i in range(300))


def test_one_method_alone_has_a_page():
    data = sample()
    del data["methods"][1:], data["tables"], data["machine"], data["setting"]
    data["methods"][0] |= {"auc": None, "log_loss": float("nan"), "curve": [], "step_ms": [3.0]}
    data["methods"][0] |= {name: 0 for name in data["methods"][0] if name.startswith("bytes_")}
    page = page_of(data)
    assert "against" not in page
    assert list(figures(page)) == ["step", "bytes"]
    assert "3.00 ms" in page


def test_tables_that_sent_nothing_have_no_ratio():
    data = sample()
    for table in data["tables"]:
        table.update({name: 0 for name in table if name.startswith("bytes_")}, bound=None)
    figure = figures(page_of(data))["tables"]
    assert [trace["x"] for trace in figure["data"]] == [[None] * 26] * 2


def test_a_result_survives_its_file(tmp_path):
    path = tmp_path / "result.json"
    result = Comparison.model_validate(sample())
    path.write_text(result.model_dump_json())
    assert read_any(path) == result


def test_the_sample_in_the_documentation_is_a_result():
    from laconic.report import result as module

    text = module.__doc__.split("::", 1)[1].split("The first method", 1)[0]
    assert Comparison.model_validate_json(text).methods[0].curve[0].auc is None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d.pop("title"), "title: required, but not given"),
        (
            lambda d: d["methods"][1].update(color="red"),
            "methods.1.color: no such field (known: name, step_ms, ",
        ),
        (
            lambda d: d["methods"][0].update(communication_share=1.5),
            "methods.0.communication_share: expected a value >= 0 and <= 1, got 1.5",
        ),
        (
            lambda d: d["methods"][0].update(step_ms=[3.0, 0.0]),
            "methods.0.step_ms.1: expected greater than 0, got 0.0",
        ),
        (
            lambda d: d["methods"][0].update(bytes_ids=float("inf")),
            "methods.0.bytes_ids: expected a finite number, got inf",
        ),
        (
            lambda d: d.update(methods=[]),
            "methods: expected at least 1 of them, got 0",
        ),
        (lambda d: d["tables"][1].update(name="C1"), "tables: names must differ, got 'C1' twice"),
    ],
)
def test_a_file_that_is_no_result_is_refused_with_the_field(tmp_path, damage, message):
    data, path = sample(), tmp_path / "r.json"
    damage(data)
    path.write_text(json.dumps(data))
    with pytest.raises(FormatError) as error:
        read_any(path)
    assert str(error.value).startswith(f"{path}: {message}")


def test_a_file_that_is_not_json_is_refused(tmp_path):
    path = tmp_path / "r.json"
    path.write_text("{")
    with pytest.raises(
        FormatError, match=r"r\.json: not JSON: EOF while parsing an object at line 1 column 1"
    ):
        read_any(path)


def test_a_report_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    result, path = Comparison.model_validate(sample()), tmp_path / "report.html"
    write_report(result, path)
    before = path.read_bytes()
    assert before.endswith(b"</html>\n")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        write_report(result, path)
    assert os.listdir(tmp_path) == ["report.html"]
    assert path.read_bytes() == before


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"report: no folder '.*/none' to write into; make it first"):
        write_report(Comparison.model_validate(sample()), tmp_path / "none" / "report.html")


def test_the_command_writes_a_page(tmp_path):
    source, out = tmp_path / "r.json", tmp_path / "page.html"
    source.write_text(json.dumps(sample()))
    script = "import sys, typer; from laconic.cli.report import report; assert 'plotly' not in sys.modules; typer.run(report)"
    command = [sys.executable, "-c", script, str(source), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{out}: {out.stat().st_size / 1e6:.1f} MB, opens in any browser\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (999.6, "1.00 kB"), (1_234_567, "1.23 MB"), (2e18, "2,000 PB")],
)
def test_bytes_have_three_digits_and_a_unit(value, text):
    assert bytes_text(value) == text


def test_other_numbers_read_well():
    assert milliseconds(96.44) == "96.4 ms"
    assert milliseconds(9.999) == "10.0 ms"
    assert milliseconds(12_345) == "12.3 s"
    assert times(None) == "\N{EN DASH}"
    assert times(1234.5) == "1,234\N{MULTIPLICATION SIGN}"
    assert times(0.05123) == "0.0512\N{MULTIPLICATION SIGN}"
    assert change(-0.00123, 4) == "\N{MINUS SIGN}0.0012"
    assert change(-0.00001, 4) == "±0.0000"
