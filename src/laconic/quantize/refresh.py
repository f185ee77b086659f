"""A new snapshot gets the recipe of an old artefact: applied, calibrated and verified again.

Precisions that were right stay right for a while, and finding them again takes minutes. Whether they still are is
measured on samples of the new run; a recipe that breaks its budget there is refused, with the parts that do it.
"""

from __future__ import annotations

from dataclasses import dataclass

from laconic.errors import ConfigError
from laconic.quant import Artefact
from laconic.quantize.debugger import PartError, debug
from laconic.quantize.drafts import Drafts
from laconic.quantize.half import Half, Scored
from laconic.quantize.held_out import thinned
from laconic.quantize.run import with_figures
from laconic.quantize.search import score
from laconic.quantize.workbench import Tell, Workbench

__all__ = ["Refreshed", "refresh", "refresh_budget"]

_PROBE = 8192


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The recipe on a new snapshot."""

    artefact: Artefact
    scored: Scored
    budget: float
    offenders: tuple[PartError, ...]
    """Parts that harm most, the worst first, where the budget is broken; else empty."""

    @property
    def within(self) -> bool:
        """Whether the artefact may be served."""
        return self.scored.harm.within(self.budget)


def refresh_budget(old: Artefact, given: float | None) -> float:
    """Return the budget that was given, or the one that the artefact was made with."""
    if given is not None:
        return given
    if "budget" not in old.metrics:
        raise ConfigError(f"{old.folder}: it was made without a budget; say one with --budget, as 0.05%")
    return old.metrics["budget"]


def refresh(bench: Workbench, old: Artefact, budget: float, tell: Tell) -> Refreshed:
    """Apply the recipe to the workbench's model; ``ConfigError`` where it is of another one."""
    old.recipe.check(bench.trained.features.table_names, bench.trained.shape.layer_names())
    drafts = Drafts(bench.trained, bench.observed, tell)
    scored = score(Half(drafts, bench.halves.verification), old.recipe, "verifying with the engine", tell)
    artefact = with_figures(bench, drafts.artefact(old.recipe), scored, budget)
    offenders: tuple[PartError, ...] = ()
    if not scored.harm.within(budget):
        some = thinned(bench.halves.search, _PROBE)
        offenders = debug(bench.trained, artefact, some, tell).parts[:3]
    return Refreshed(artefact, scored, budget, offenders)
