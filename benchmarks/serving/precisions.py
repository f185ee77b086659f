"""The precisions that ``laconic quantize --budget 0.03%`` finds for a model of the benchmark: what Laconic serves there.

NE is to change by 0.05 % at most, on samples that the search does not have. Those have noise of their own, by calculation 0.015 %
for a combination that harms by 0.03 %, so the search is told to leave room for it.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.serving.models import BATCH, Case
from benchmarks.serving.steps import Steps
from laconic.quantize.search.run import SearchSettings, measurement_file, search_run
from laconic.quantize.search.workbench import Workbench

__all__ = ["PARTS", "with_precisions"]

_SETTINGS = SearchSettings(budget=0.0003, objective="size", probe=4096, batch=BATCH)
"""As the command's, but for a smaller probe: there are three models to search in a few minutes."""

PARTS = 2
"""Steps of a search."""


def with_precisions(case: Case, bench: Workbench, steps: Steps) -> Case:
    """Search on samples that the case does not have."""

    def tell(what: str, done: int, total: int) -> None:
        if what == "measuring candidates":
            steps.within(done, total)
            if done == total:
                steps.begin(f"{case.name}: combining them")
        else:
            steps.say(f"{case.name}: {what}, {done} of {total}")

    steps.begin(f"{case.name}: measuring candidates")
    with tempfile.TemporaryDirectory() as scratch:
        file = measurement_file(bench, _SETTINGS, Path(scratch, "measured.jsonl"), fresh=True)
        return replace(case, artifact=search_run(bench, _SETTINGS, file, tell).artifact)
