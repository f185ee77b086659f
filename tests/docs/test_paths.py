"""Files that pages name are where the pages say."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cases import each

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
HOMES = ("src/laconic", "src", ".", "benchmarks", "tests")
FOLDERS = ("src", "csrc", "benchmarks", "tests", "fuzz", "examples", "docs")
FILES = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*")}
OF_A_USER = {"train.py", "ddp.py"}  # what a page tells its reader to write


@each("page", PAGES)
def test_files_that_a_page_names_exist(page):
    named = set(re.findall(r"(?<![\w/.-])[\w/-]+\.(?:py|cpp|h|inl|bpf\.c)\b", page.read_text())) - OF_A_USER
    missing = {
        name
        for name in named
        if not (any((ROOT / home / name).exists() for home in HOMES) if "/" in name else name in FILES)
    }
    assert missing == set()
