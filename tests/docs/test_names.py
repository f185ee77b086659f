"""What pages name exists: public names, commands with their options, and layers of the code."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

import laconic
from benchmarks.__main__ import app as benchmarks
from laconic.cli import app as commands
from tests.cases import each

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "README.md", *sorted(ROOT.glob("docs/guides/*.md"))]
PAGES = [*ROOT.glob("*.md"), *sorted(ROOT.glob("docs/**/*.md"))]
PAGES.remove(ROOT / "CHANGELOG.md")  # it names what is gone
NOT_PYTHON = {"laconic.access"}  # a key of a Parquet file


def tree(command: Any, words: tuple[str, ...]) -> dict[tuple[str, ...], set[str]]:
    """Return the options of a command and of those below it, by the words that one types."""
    options = {name for parameter in command.params for name in parameter.opts + parameter.secondary_opts}
    found = {words: options}
    for name, below in getattr(command, "commands", {}).items():
        found |= tree(below, (*words, name))
    return found


OPTIONS = {
    **tree(typer.main.get_command(commands), ("laconic",)),
    **tree(typer.main.get_command(benchmarks), ("python", "-m", "benchmarks")),
}


def typed(text: str) -> list[list[str]]:
    """Return the words of every command, in a block or a line of code, until a ``--``."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    code = lines + re.findall(r"`([^`]+)`", prose)
    found = [
        re.search(r"(?:^|\s)((?:laconic|python -m benchmarks) [a-z].*)", " ".join(c.split())) for c in code
    ]
    commands_typed = [match[1].split(" -- ")[0].split() for match in found if match]
    return [words for words in commands_typed if "import" not in words]


def unknown_options(words: list[str]) -> set[str]:
    """Return what a command does not have; its own name, if there is no such command."""
    known = [start for start in OPTIONS if tuple(words[: len(start)]) == start]
    command = max(known, key=len)
    if command in (("laconic",), ("python", "-m", "benchmarks")):
        return {" ".join(words)}
    given = {
        re.split(r"[=\])]", word.lstrip("[("))[0] for word in words if word.lstrip("[(").startswith("--")
    }
    return given - OPTIONS[command]


def test_every_public_name_is_in_a_guide():
    text = "\n".join(page.read_text() for page in GUIDES)
    assert [name for name in laconic.__all__ if not re.search(rf"\b{name}\b", text)] == []


@each("page", PAGES)
def test_names_within_laconic_exist(page):
    for dotted in set(re.findall(r"\blaconic(?:\.[A-Za-z_]\w*)+", page.read_text())) - NOT_PYTHON:
        found: Any = laconic
        path = "laconic"
        for name in dotted.split(".")[1:]:
            path += f".{name}"
            found = getattr(found, name) if hasattr(found, name) else import_module(path)


@each("page", PAGES)
def test_commands_have_the_options_that_a_page_gives_them(page):
    assert [unknown for words in typed(page.read_text()) if (unknown := unknown_options(words))] == []


def test_an_option_that_does_not_exist_would_be_found():
    text = "`laconic train run.toml --page x`\n```\nlaconic lab --mbps 2 -- python a.py --any\n```\n`laconic fly`"
    found = [unknown_options(words) for words in typed(text)]
    assert found == [set(), {"--page"}, {"laconic fly"}]


def test_layers_of_the_architecture_are_those_that_are_checked():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = [c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    checked = [set(layer.replace("laconic.", "").split(" | ")) for layer in contract["layers"]]
    text = (ROOT / "ARCHITECTURE.md").read_text()
    block = text.split("## Layers")[1].split("```")[1]
    drawn: list[set[str]] = []
    for beside, names in re.findall(
        r"^ (  \| )?([a-z][\w.]*(?: \| [a-z][\w.]*)*)(?:  |$)", block, re.MULTILINE
    ):
        if beside:
            drawn[-1] |= set(names.split(" | "))
        else:
            drawn.append(set(names.split(" | ")))
    assert drawn == checked


def test_classes_that_the_architecture_draws_exist():
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    defined = set(re.findall(r"^class (\w+)", source, re.MULTILINE))
    blocks = re.findall(r"^```\n(.*?)^```$", (ROOT / "ARCHITECTURE.md").read_text(), re.DOTALL | re.MULTILINE)
    drawn = set(re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", "".join(blocks)))
    assert len(drawn) > 30
    assert drawn - defined == set()
