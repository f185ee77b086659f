"""What a rank sent, as a table, a dictionary, a page and a file."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from laconic.errors import ConfigError
from laconic.exchange.traffic_report import Bypass, FlowTotal, Traffic, TrafficReport
from tests.exchange.test_ledger import filled

HOSTILE = "<script>alert(1)</script> [red]"


def report(*names):
    """Ten steps of dense gradients, ten times smaller, the second of the names bypassed."""
    rows = [Traffic(name, "dense", 40_000 * (k + 1), 4_000 * (k + 1)) for k, name in enumerate(names)]
    before, sent = sum(row.bytes_before for row in rows), sum(row.bytes_sent for row in rows)
    total = FlowTotal("dense", 10, before, sent, 0.02, 0.3, 0.01)
    return TrafficReport(1, 4, tuple(rows), (total,), (Bypass(names[1], "no faster than DDP", 3),))


def test_a_ledger_of_tables_becomes_a_report():
    found = TrafficReport.from_ledger(filled(), rank=0, ranks=2)
    assert found.rows[:3] == (
        Traffic("user", "rows", 9000, 1000),
        Traffic("user", "gradients", 9000, 1000),
        Traffic("user", "ids", 400, 200),
    )
    assert [(total.direction, total.bytes_sent) for total in found.totals] == [
        ("rows", 1000 + 2 * 50),
        ("gradients", 1000 + 2 * 50),
        ("ids", 200 + 2 * 50),
    ]
    assert (found.steps, found.bytes_before, found.bytes_sent) == (2, 18_400, 2500)
    assert found.ratio == 18_400 / 2500


def test_a_rank_that_sent_nothing_saved_nothing():
    assert TrafficReport(0, 1, (), ()).ratio == 1
    assert str(TrafficReport(0, 1, (), ())).startswith("rank 0 of 1 sent 0 B instead of 0 B in 0 steps")


def test_the_printed_table_is_aligned_and_has_no_colors():
    shown = str(report("0.weight", "1.weight"))
    assert shown == repr(report("0.weight", "1.weight"))
    assert shown.replace("\N{MULTIPLICATION SIGN}", "x").splitlines() == [
        "rank 1 of 4 sent 12.0 kB instead of 120 kB in 10 steps: 10.0x fewer; per step:",
        "",
        "name       direction    before      sent   ratio",
        "────────────────────────────────────────────────",
        "0.weight   dense       4.00 kB     400 B   10.0x",
        "1.weight   dense       8.00 kB     800 B   10.0x",
        "",
        "total      dense       12.0 kB   1.20 kB   10.0x",
        "",
        "direction   steps   encoding   on the wire   decoding",
        "─────────────────────────────────────────────────────",
        "dense          10    2.00 ms       30.0 ms    1.00 ms",
        "",
        "bypassed   because              times",
        "─────────────────────────────────────",
        "1.weight   no faster than DDP       3",
    ]


def test_of_many_names_those_that_send_most_are_printed_and_all_are_in_the_dictionary():
    many = report(*(f"{k}.weight" for k in range(20)))
    printed = [line.split()[0] for line in str(many).splitlines() if "dense" in line and "weight" in line]
    assert printed == [f"{k}.weight" for k in range(8, 20)]
    assert "8 more that send less" in str(many)
    assert len(many.to_dict()["rows"]) == 20


def test_the_dictionary_is_ready_for_json():
    tree = report("a", "b").to_dict()
    assert json.loads(json.dumps(tree)) == tree
    assert {"rank": 1, "ranks": 4, "steps": 10, "bytes_sent": 12_000, "ratio": 10.0}.items() <= tree.items()
    assert tree["bypassed"] == [{"name": "b", "reason": "no faster than DDP", "times": 3}]
    assert tree["totals"][0]["wire_s"] == 0.3


def test_a_saved_page_is_whole_and_runs_nothing(tmp_path):
    report("0.weight", HOSTILE).save(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "0.weight" in page
    assert "no faster than DDP" in page
    assert "<script" not in page
    assert re.findall(r'(?:src|href)="', page) == []


def test_a_notebook_and_a_terminal_show_names_as_they_are():
    shown = report("0.weight", HOSTILE)
    assert "<script" not in shown._repr_html_()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; [red]" in shown._repr_html_()
    assert HOSTILE in str(shown)


def test_a_saved_dictionary_is_the_dictionary(tmp_path):
    report("a", "b").save(str(tmp_path / "report.json"))
    assert json.loads((tmp_path / "report.json").read_text()) == report("a", "b").to_dict()


def test_another_kind_of_file_is_refused(tmp_path):
    with pytest.raises(ConfigError) as caught:
        report("a", "b").save("report.csv")
    assert str(caught.value) == "report: expected a file that ends in .html or .json, got 'report.csv'"
    with pytest.raises(ConfigError, match=r"report: no folder '.*nowhere' to write into; make it first"):
        report("a", "b").save(tmp_path / "nowhere" / "report.html")


def test_all_ranks_of_a_process_are_reported_together():
    together = replace(report("a", "b"), rank=None, ranks=4)
    assert str(together).startswith("4 ranks together sent ")
    assert "4 ranks together" in together._repr_html_()
    assert together.to_dict()["rank"] is None
