"""The precisions that ``laconic quantize --budget 0.05%`` finds for a model of the benchmark: what Laconic serves there."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from laconic.bench.serving.models import BATCH, Case, search_samples
from laconic.bench.serving.steps import Steps
from laconic.quantize.run import SearchSettings, measurement_file, search_run
from laconic.quantize.workbench import make_workbench

__all__ = ["PARTS", "with_precisions"]

_SETTINGS = SearchSettings(budget=0.0005, objective="size", batch=BATCH)

PARTS = 2
"""Steps of a search."""


def with_precisions(case: Case, steps: Steps) -> Case:
    """Search on half of the held-out samples; the case has the others."""

    def tell(what: str, done: int, total: int) -> None:
        if what == "measuring candidates":
            steps.within(done, total)
        else:
            steps.say(f"{case.name}: {what}, {done} of {total}")

    with tempfile.TemporaryDirectory() as scratch:
        steps.begin(f"{case.name}: reading samples of the search")
        most = search_samples(case.source)
        bench = make_workbench(case.trained, case.source, most=most, seed=_SETTINGS.seed, tell=tell)
        file = measurement_file(bench, _SETTINGS, Path(scratch, "measured.jsonl"), fresh=True)
        steps.begin(f"{case.name}: measuring candidates")
        return replace(case, artefact=search_run(bench, _SETTINGS, file, tell).artefact)
