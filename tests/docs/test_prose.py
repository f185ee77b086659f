"""Prose that fits on a screen: lines of at most 100 characters, tables, code and links left out."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cases import each

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
LONGEST = 100


def prose(text):
    """Return number and text of lines outside of code blocks, tables and links."""
    in_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith(("|", "<", "![")) and "](" not in line:
            yield number, line


@each("page", PAGES)
def test_lines_are_short(page):
    long = [number for number, line in prose(page.read_text()) if len(line) > LONGEST]
    assert long == []


def test_a_long_line_would_be_found():
    text = "\n".join(["short", "x" * 101, "```", "y" * 101, "```", "| z |" + 101 * " "])
    assert [number for number, line in prose(text) if len(line) > LONGEST] == [2]
    assert not re.search("z", "".join(line for _, line in prose(text)))
