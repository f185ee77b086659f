"""A command that lacks a package says in one line what to install, whatever the package is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from laconic.cli.output import EXTRAS, need, remedy
from tests.cli.forked import laconic

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_table_of_extras_is_that_of_the_project():
    declared = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    del declared["dev"]  # what no command needs
    packages = {
        extra: tuple(re.match(r"[\w-]+", line)[0].replace("-", "_") for line in lines)
        for extra, lines in declared.items()
    }
    assert packages == EXTRAS


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        ("serve artifact", "fastapi", "serve"),
        ("serve artifact", "safetensors", "serve"),
        ("quantize .", "scipy", "quantize"),
        ("quantize .", "safetensors", "quantize"),
        ("quantize . --report page.html", "plotly", "report"),
        ("prepare raw.txt --out folder", "pyarrow", "data"),
        ("profile raw --out access.parquet", "pyarrow", "data"),
        ("simulate --report page.html", "plotly", "report"),
        ("tune run.toml --report page.html", "plotly", "report"),
        ("plan cluster.toml", "scipy", "plan"),
        ("tune run.toml", "scipy", "tune"),
    ],
)
def test_a_missing_package_is_one_line_with_the_remedy(words, package, extra, tmp_path):
    for file in ("raw.txt", "run.toml", "cluster.toml"):
        (tmp_path / file).touch()
    (tmp_path / "raw").mkdir()
    done = laconic(*words.split(), cwd=tmp_path, hidden=package)
    command = words.partition(" ")[0]
    assert done.stderr.strip() == f"laconic: {command}: needs {package}; pip install 'laconic[{extra}]'"
    assert done.returncode == 1


def test_what_no_extra_brings_is_not_explained_away(tmp_path):
    done = laconic("info", cwd=tmp_path, hidden="laconic.machine")
    assert "Traceback" in done.stderr
    assert "pip install" not in done.stderr


@pytest.mark.parametrize(
    ("command", "name", "line"),
    [
        ("serve", "prometheus_client", "serve: needs prometheus_client; pip install 'laconic[serve]'"),
        ("train", "pyarrow.parquet", "train: needs pyarrow; pip install 'laconic[data]'"),
        ("bench", "scipy", "bench: needs scipy; pip install 'laconic[plan]'"),
        ("serve", "laconic.nothing", None),
    ],
)
def test_the_command_s_own_extra_is_named_where_it_has_the_package(command, name, line):
    assert remedy(ModuleNotFoundError(name=name), command) == line


def test_what_is_there_is_not_missed():
    need("pytest")
