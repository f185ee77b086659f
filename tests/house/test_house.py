"""Rules of the house that a machine can check."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import laconic
from laconic.kernels.cpu import _native
from tests.conftest import SLOW
from tests.distributed.ranks import NEEDED

ROOT = Path(__file__).parents[2]


def test_public_names_are_there_once_and_exist():
    assert len(laconic.__all__) == len(set(laconic.__all__))
    for name in laconic.__all__:
        homes = [home for home, names in laconic._HOMES.items() if name in names]
        assert len(homes) == 1, name
        assert getattr(laconic, name) is getattr(importlib.import_module(homes[0]), name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'laconic' has no attribute 'Bonded'"):
        _ = laconic.Bonded


def test_the_native_module_does_not_link_torch():
    listing = subprocess.run(["ldd", _native.__file__], capture_output=True, text=True, check=True).stdout
    assert "torch" not in listing
    assert "libc10" not in listing  # an address may well contain c10


def test_vector_code_shares_no_symbol_with_code_for_other_machines():
    """A weak symbol compiled for AVX2 may replace the generic one, and crash elsewhere."""
    objects = list(ROOT.glob("build/cp*/CMakeFiles/laconic_core.dir/csrc/isa/avx*.cpp.o"))
    if not objects or not shutil.which("nm"):
        pytest.skip("no object files of csrc/isa/avx*.cpp or no nm")
    for path in objects:
        symbols = subprocess.run(["nm", "-C", path], capture_output=True, text=True, check=True).stdout
        assert re.findall(r" [WVu] .*", symbols) == []


def test_what_is_imported_once_for_all_ranks_exists():
    """Or every rank would import it by itself, and nobody would notice."""
    assert [name for name in NEEDED if importlib.util.find_spec(name) is None] == []


def test_what_is_left_out_of_quick_tests_exists():
    """Or a folder that was renamed would be back among them, and nobody would notice."""
    assert [name for name in SLOW if not (ROOT / "tests" / name).exists()] == []


def test_no_module_is_a_warehouse():
    names = {path.stem for folder in ("src", "benchmarks") for path in ROOT.glob(f"{folder}/**/*.py")}
    assert names.isdisjoint({"utils", "helpers", "common", "misc", "base"})
    too_long = [
        f"{path.relative_to(ROOT)}: {lines}"
        for pattern in ("src/**/*.py", "benchmarks/**/*.py", "csrc/**/*.*")
        for path in ROOT.glob(pattern)
        if (lines := len(path.read_text().splitlines())) > 400
    ]
    assert too_long == []


@pytest.mark.parametrize("target", ["demo", "test", "test-quick", "lint", "bench", "fuzz"])
def test_the_readme_and_the_makefile_agree(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert f"make {target}" in (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
