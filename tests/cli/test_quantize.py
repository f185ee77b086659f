"""``laconic quantize`` from a run to artifacts, and its ways out."""

from __future__ import annotations

import json

import pytest
import tomli_w
from typer.testing import CliRunner

from laconic.cli import app
from laconic.config import parse
from laconic.errors import LaconicError
from laconic.quantize.formats import read_artifact
from laconic.report import read_any
from laconic.train.run import run
from laconic.train.settings import RunSettings

pytest.importorskip("scipy")

RUN = """
[data]
kind = "synthetic"
rows = [50, 500, 5]
dense = 2
samples = 8192
eval_samples = 3000
[model]
dim = 8
bottom = [8]
top = [8]
[compression]
rows = "exact"
gradients = "exact"
[train]
batch = 128
out = "{out}"
"""


def quantize(*arguments):
    return CliRunner().invoke(app, ["quantize", *map(str, arguments)])


@pytest.fixture(scope="module")
def quantized(tmp_path_factory):
    """A folder with a run, its artifact, and what was printed."""
    folder = tmp_path_factory.mktemp("quantize")
    run(parse(RUN.format(out=folder / "run"), RunSettings), resume=False, console=None)
    done = quantize(
        folder / "run",
        *("--out", folder / "low", "--budget", "0.5%", "--probe", 600),
        *("--json", folder / "q.json", "--report", folder / "q.html"),
    )
    assert done.exit_code == 0, (done.output, done.exception)
    return folder, done.stdout


def test_the_command_writes_artifact_result_and_page(quantized):
    folder, _ = quantized
    artifact, result = read_artifact(folder / "low"), read_any(folder / "q.json")
    assert artifact.has_shadow
    assert artifact.size_bytes == result.low.bytes < 0.5 * result.exact.bytes
    assert artifact.metrics["budget"] == result.budget == 0.005
    assert artifact.metrics["ne_change"] == result.harm.measured <= 0.005
    assert artifact.population is not None
    assert artifact.population.unknown.keys() == artifact.recipe.tables.keys()
    assert result.samples.search + result.samples.verification == 3000
    chosen = {part.name: part.precision.label for part in result.parts}
    assert set(chosen) == {*artifact.recipe.tables, *artifact.recipe.layers}
    assert chosen["c1"].startswith(artifact.recipe.tables["c1"].format)
    page = (folder / "q.html").read_text()
    assert "<h1>run in low precision</h1>" in page
    assert all(f'id="{chart}"' in page for chart in ("pareto-size", "pareto-latency", "tables", "layers"))


def test_the_command_shows_every_part_and_the_verdict(quantized):
    _, shown = quantized
    for word in ("c0", "c1", "c2", "bottom.0", "top.0", "logit", "of fp32", "allowed", "AUC"):
        assert word in shown


def test_another_budget_takes_no_new_measurements(quantized):
    folder, _ = quantized
    before = (folder / "run" / "quantize.jsonl").read_text()
    done = quantize(
        folder / "run", "--out", folder / "lower", "--budget", "5%", "--probe", 600, "--objective", "latency"
    )
    assert done.exit_code == 0, (done.output, done.exception)
    assert "measurements were taken from" in done.stdout
    assert (folder / "run" / "quantize.jsonl").read_text() == before


def test_an_artifact_is_refreshed_with_its_own_budget(quantized):
    folder, _ = quantized
    done = quantize(folder / "low", "--refresh", folder / "run", "--out", folder / "new", "--no-shadow")
    assert done.exit_code == 0, (done.output, done.exception)
    old, new = read_artifact(folder / "low"), read_artifact(folder / "new")
    assert (new.recipe, new.metrics) == (old.recipe, old.metrics)
    assert not new.has_shadow


def test_a_refresh_that_breaks_the_budget_writes_nothing_and_says_what_to_do(quantized):
    folder, _ = quantized
    done = quantize(
        folder / "low",
        *(
            "--refresh",
            folder / "run",
            "--out",
            folder / "no",
            "--budget",
            "1e-12",
            "--json",
            folder / "r.json",
        ),
    )
    assert done.exit_code == 3
    assert "breaks its budget of 0.0000%" in done.stderr
    assert "search again with laconic quantize" in done.stderr
    assert not (folder / "no").exists()
    refused = json.loads((folder / "r.json").read_text())
    assert refused["within"] is False
    assert refused["offenders"][0]["part"]["name"] in done.stderr


def test_artifacts_and_recipes_are_debugged_alike(quantized):
    folder, _ = quantized
    artifact = read_artifact(folder / "low")
    (folder / "recipe.toml").write_text(
        tomli_w.dumps(artifact.recipe.model_dump(mode="json", exclude_none=True))
    )
    found = []
    for what in ("low", "recipe.toml"):
        done = quantize(folder / "run", "--debug", folder / what, "--probe", 500, "--json", folder / "d.json")
        assert done.exit_code == 0, (done.output, done.exception)
        assert "all together: NE" in done.stdout
        found.append(json.loads((folder / "d.json").read_text()))
    assert found[0] == found[1]
    harms = [part["harm"]["expected"] for part in found[0]["parts"]]
    assert harms == sorted(harms, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "nowhere: no such folder; expected that of a training run, its train.out"),
        (
            ("{run}", "--out", "{low}"),
            "--out: '{low}' exists, and artifacts are never changed; choose another folder",
        ),
        (
            ("{run}", "--budget", "much"),
            "--budget: expected a share of the loss, as 0.05% or 0.0005, got 'much'",
        ),
        (
            ("{run}", "--debug", "{low}", "--refresh", "{run}"),
            "--debug and --refresh: give one of them; each has its own result",
        ),
        (
            ("{run}", "--debug", "no.toml"),
            "--debug: no 'no.toml'; expected the folder of an artifact or a recipe, *.toml",
        ),
        (
            ("{run}", "--debug", "{low}", "--report", "d.html"),
            "--report: only a search has a page; use --json",
        ),
        (
            ("{low}", "--refresh", "no"),
            "--refresh: no folder 'no'; expected that of a training run, its train.out",
        ),
    ],
)
def test_what_cannot_work_is_said_before_the_work(quantized, tmp_path, monkeypatch, arguments, message):
    folder, _ = quantized
    monkeypatch.chdir(tmp_path)
    names = {"run": folder / "run", "low": folder / "low"}
    done = quantize(*(argument.format(**names) for argument in arguments))
    assert isinstance(done.exception, LaconicError)
    assert str(done.exception) == message.format(**names)
    assert list(tmp_path.iterdir()) == []
