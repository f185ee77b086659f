"""Examples in docstrings are run, and print what they say."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import laconic
from tests.cases import each

_SOURCES = Path(laconic.__file__).parent
_MODULES = [
    ".".join(("laconic", *path.relative_to(_SOURCES).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(_SOURCES.rglob("*.py"))
    if ">>> " in path.read_text()
]


@each("module", _MODULES)
def test_the_examples_of_a_module_run(module):
    failed, tried = doctest.testmod(import_module(module))
    assert tried
    assert not failed
