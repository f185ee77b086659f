"""A formula that several rooms need stands in one place; the others call it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cases import each

ROOT = Path(__file__).parents[2]

FORMULAS = {
    "bytes of heads": (r"_HEAD_BYTES \+ ", {"cost/link.py"}),
    "bytes of a ring": (
        r"2 \* \([\w.]*(ranks|count) - 1\) \* (?!float\()|2 \* \([\w.]*(ranks|count) - 1\) /",
        {"cost/link.py"},
    ),
    "when owners sum": (r"ranks > 2", {"cost/link.py"}),
    "what of the wire is exposed": (r"max(imum)?\((0\.0, )?(float\()?wire\w*\)? - ", {"cost/link.py"}),
    "bytes of coded dense gradients": (r"\b(6|27) / 32", {"cost/link.py"}),
    "the best of several timings": (r"min\(times\)", {"cost/measure.py"}),
    "HiGHS": (r"\bmilp\(", {"plan/solve/highs.py"}),
    "splitmix64": (
        "BF58476D1CE4E5B9",
        {"data/hashing.py", "kernels/reference/quantize/quantize.py"},  # the second is a specification
    ),
}


@each("name", FORMULAS)
def test_a_formula_is_stated_once(name):
    pattern, homes = FORMULAS[name]
    source = ROOT / "src" / "laconic"
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if any(re.search(pattern, line) for line in path.read_text().splitlines())
    }
    assert found == homes
