"""A new snapshot gets the recipe of an old artifact: applied, calibrated and verified again.

Precisions that were right stay right for a while, and finding them again takes minutes. Whether they still are is
measured on samples of the new run; a recipe that breaks its budget there is refused, with the parts that do it.
"""

from __future__ import annotations

from dataclasses import dataclass

from laconic.errors import ConfigError
from laconic.quantize.formats import Artifact
from laconic.quantize.search.debugger import PartError, debug
from laconic.quantize.search.drafts import Drafts
from laconic.quantize.search.half import Half, Scored
from laconic.quantize.search.held_out import thinned
from laconic.quantize.search.run import with_figures
from laconic.quantize.search.search import score
from laconic.quantize.search.workbench import Tell, Workbench

__all__ = ["Refreshed", "refresh", "refresh_budget"]

_PROBE = 8192


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The recipe on a new snapshot."""

    artifact: Artifact
    scored: Scored
    budget: float
    offenders: tuple[PartError, ...]
    """Parts that harm most, the worst first, where the budget is broken; else empty."""

    @property
    def within(self) -> bool:
        """Whether the artifact may be served."""
        return self.scored.harm.within(self.budget)


def refresh_budget(old: Artifact, given: float | None) -> float:
    """Return the budget that was given, or the one that the artifact was made with."""
    if given is not None:
        return given
    if "budget" not in old.metrics:
        raise ConfigError(f"{old.folder}: it was made without a budget; say one with --budget, as 0.05%")
    return old.metrics["budget"]


def refresh(bench: Workbench, old: Artifact, budget: float, tell: Tell) -> Refreshed:
    """Apply the recipe to the workbench's model; ``ConfigError`` where it is of another one."""
    old.recipe.check(bench.trained.features.table_names, bench.trained.shape.layer_names())
    drafts = Drafts(bench.trained, bench.observed, tell)
    scored = score(Half(drafts, bench.halves.verification), old.recipe, "verifying with the engine", tell)
    artifact = with_figures(bench, drafts.artifact(old.recipe), scored, budget)
    offenders: tuple[PartError, ...] = ()
    if not scored.harm.within(budget):
        some = thinned(bench.halves.search, _PROBE)
        offenders = debug(bench.trained, artifact, some, tell).parts[:3]
    return Refreshed(artifact, scored, budget, offenders)
