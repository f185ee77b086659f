"""The page of a run: what it shows of ``metrics.jsonl``, and what it refuses."""

from __future__ import annotations

import json
import re

import plotly.graph_objects
import pytest
from plotly.offline import get_plotlyjs

from laconic.adapt.guard import HarmEstimate
from laconic.errors import FormatError
from laconic.numerals import times
from laconic.report import read_any, render, write_report

HOSTILE = "</script><script>alert('1')</script><img src=x onerror=alert(2)> & \"'"


def entries():
    """A short run in which everybody decides something."""
    guard = {"kind": "decision", "step": 8, "part": "guard", "direction": "rows"}
    economy = {"kind": "decision", "step": 10, "part": "economy", "direction": "backward"}
    return [
        {**guard, "tables": ["a"], "factor": 0.25, "reason": "error is 0.77 of the signal, more than 0.05"},
        {**guard, "tables": ["b"], "factor": 0.5, "reason": "error is 0.12 of the signal, more than 0.05"},
        {**guard, "tables": ["c"], "factor": 1.5, "reason": "harm of rows at most 0.0021% of 0.050%"},
        {
            **economy,
            "table": "a",
            "old": "bounded",
            "new": "exact",
            "reason": "the link is faster than the codec: 1 ms",
        },
        {"kind": "train", "step": 20, "loss": 0.7, "auc": None, "samples_per_s": 100.0, "ratio": 2.0},
        {"kind": "train", "step": 40, "loss": 0.6, "auc": 0.7, "samples_per_s": 110.0, "ratio": 3.0},
        {"kind": "plan", "step": 40, "anything": {}},
        {
            "kind": "eval",
            "step": 60,
            "auc": 0.71,
            "log_loss": 0.58,
            "normalized_entropy": 0.9,
            "samples": 4096,
        },
    ]


def written(folder, lines, end="\n"):
    folder.mkdir(exist_ok=True)
    file = folder / "metrics.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + end)
    return file


def page_of(folder, lines):
    return render(read_any(written(folder, lines))).replace(get_plotlyjs(), "")


def figures(page):
    found = re.findall(r'<script type="application/json" data-chart="([\w-]+)">(.*?)</script>', page)
    return {name: json.loads(text) for name, text in found}


def cells(page):
    """Rows of the table of decisions that are in sight, as text."""
    (body,) = re.findall(r'<table class="decisions">.*?<tbody>(.*?)</tbody>', page.split("<details>")[0])
    rows = [re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", body)]
    return [[re.sub(r"<.*?>", "", cell) for cell in row] for row in rows]


def test_decisions_are_listed_with_who_made_them_and_why(tmp_path):
    assert cells(page_of(tmp_path / "run", entries())) == [
        ["8", "guard", "rows", "a, b", "times 0.25 to 0.5", "error is 0.77 of the signal, more than 0.05"],
        ["8", "guard", "rows", "c", "times 1.5", "harm of rows at most 0.0021% of 0.050%"],
        ["10", "economy", "gradients", "a", "bounded → exact", "the link is faster than the codec: 1 ms"],
    ]


def test_changes_of_one_review_of_costs_stand_in_one_line(tmp_path):
    aim = "of the loss, aim is 0.035%"
    guard = {"kind": "decision", "step": 64, "part": "guard", "direction": "gradients"}
    lines = [
        {**guard, "tables": ["a"], "factor": 0.5, "reason": f"costs 0.0900% of 0.0950% {aim}"},
        {**guard, "tables": ["b"], "factor": 0.25, "reason": f"costs 0.0050% of 0.0950% {aim}"},
    ]
    expected = [
        "64",
        "guard",
        "gradients",
        "a, b",
        "times 0.25 to 0.5",
        f"costs 0.0900% of 0.0950% {aim}",
    ]
    assert cells(page_of(tmp_path / "run", lines)) == [expected]


def test_each_decision_also_stands_by_itself(tmp_path):
    folded = page_of(tmp_path / "run", entries()).split("<details>")[1]
    assert "Each of 4 decisions" in folded
    assert "error is 0.12 of the signal, more than 0.05" in folded


def test_many_tables_are_named_by_the_first_three(tmp_path):
    decision = entries()[0] | {"tables": list("abcdefg")}
    assert cells(page_of(tmp_path / "run", [decision]))[0][3] == "a, b, c and 4 more"


def test_curves_mark_the_steps_of_decisions(tmp_path):
    found = figures(page_of(tmp_path / "run", entries()))
    assert list(found) == ["loss", "ratio"]  # one evaluation is no curve
    assert found["loss"]["data"][0]["y"] == [0.7, 0.6]
    assert [shape["x0"] for shape in found["loss"]["layout"]["shapes"]] == [8, 10]
    for figure in found.values():
        plotly.graph_objects.Figure(json.loads(re.sub(r'"--[\w-]+"', '"red"', json.dumps(figure))))


def test_the_end_is_in_large_figures(tmp_path):
    page = page_of(tmp_path / "run", entries())
    assert "<h1>run</h1>" in page
    assert "<strong>0.71000</strong> <span>AUC</span><small>on 4,096 samples after step 60</small>" in page
    assert f"<strong>{times(3)}</strong>" in page


def test_what_rounding_has_cost_is_said_as_it_was_last_known(tmp_path):
    first, last = (HarmEstimate(rows, 0.0002) for rows in (0.0001, 0.0003))
    lines = [
        {"kind": "rounding", "step": step, **harm.as_dict(), "line": harm.line(0.0004)}
        for step, harm in ((40, first), (60, last))
    ]
    page = page_of(tmp_path / "run", [*entries(), *lines])
    assert last.line(0.0004) in page
    assert first.line(0.0004) not in page
    assert "rounding has cost" not in page_of(tmp_path / "older", entries())


def test_the_total_of_bytes_has_dense_gradients_and_older_metrics_say_that_theirs_has_not(tmp_path):
    older = page_of(tmp_path / "older", entries())
    assert "rows, gradients and ids only; dense gradients are not counted" in older
    train = entries()[5] | {"ratio": 2.6, "bytes_before": 886e3, "bytes_sent": 340e3, "bytes_dense": 241e3}
    page = page_of(tmp_path / "run", [entries()[4], train])
    assert f"<strong>{times(2.6)}</strong>" in page
    assert "886 kB → 340 kB a step, all that rank 0 sent; 241 kB of it are dense gradients" in page


def test_a_loss_that_ran_away_leaves_a_gap(tmp_path):
    lines = [
        {"kind": "train", "step": s, "loss": loss} for s, loss in ((1, 0.7), (2, float("inf")), (3, 0.6))
    ]
    assert figures(page_of(tmp_path / "run", lines))["loss"]["data"][0]["x"] == [1, 3]


def test_a_run_without_decisions_says_so(tmp_path):
    assert "<p>None.</p>" in page_of(tmp_path / "run", entries()[4:])


def test_hostile_names_and_reasons_are_text(tmp_path):
    lines = [
        entries()[0] | {"tables": [HOSTILE], "reason": HOSTILE, "part": HOSTILE},
        {"kind": "rounding", "step": 8, "line": HOSTILE},
    ]
    page = page_of(tmp_path / "run", lines)
    assert "<script>alert" not in page
    assert "<img" not in page


def test_a_folder_is_read_and_half_a_line_is_left_out(tmp_path):
    written(tmp_path / "run", [*entries(), '{"kind": "train", "st'], end="")
    result = read_any(tmp_path / "run")
    assert [entry.step for entry in result.trained] == [20, 40]
    write_report(result, tmp_path / "page.html")
    assert "Decisions" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: not JSON"),
        ("[1]", "line 1: expected an object with a kind, got '[1]'"),
        ('{"kind": "train"}', "line 1: step: required, but not given"),
        ('{"kind": "train", "step": -1}', "line 1: step: expected a value >= 0, got -1"),
        ('{"kind": "plan", "step": 1}', "no metrics in it yet"),
    ],
)
def test_a_file_that_is_no_log_is_refused_with_the_line(tmp_path, line, message):
    with pytest.raises(FormatError, match=re.escape(message)):
        read_any(written(tmp_path / "run", [line]))


def test_a_folder_without_metrics_is_refused(tmp_path):
    with pytest.raises(FormatError, match=r"metrics\.jsonl: no such file; a run writes it"):
        read_any(tmp_path)
