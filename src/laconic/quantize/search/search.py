"""The search: measure every candidate once, solve, measure the combination, verify it on samples never seen.

Harms of parts are added as if errors did not meet. They do, so the combination that was chosen is measured itself, on
all samples of the search; what exceeds the budget is taken off it, and another combination solved for. Only one that
passes is scored on the verification half. Where that refuses it, the budget is tightened too, and the result
says how often the half was looked at: each look makes it a little less unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laconic.errors import PlanError
from laconic.quantize.formats.recipe import Recipe
from laconic.quantize.formats.result import Attempt, Objective
from laconic.quantize.search.choose import Chosen, choose, harm_figures
from laconic.quantize.search.half import Half, Scored
from laconic.quantize.search.sensitivity import Measurement
from laconic.quantize.search.workbench import Tell

__all__ = ["Found", "score", "search"]

_MOST_ATTEMPTS = 12
_STEP = 0.95  # the least that a budget is tightened by, where it was broken
_CARE = 0.98  # beyond what would have sufficed


@dataclass(frozen=True, slots=True)
class Found:
    """What the search came to."""

    chosen: Chosen
    attempts: tuple[Attempt, ...]
    verified: Scored


def search(
    parts: Sequence[Sequence[Measurement]],
    budget: float,
    objective: Objective,
    search_half: Half,
    verification_half: Half,
    tell: Tell = lambda what, done, total: None,
) -> Found:
    """Find the combination that takes least and is within the budget on both halves; ``PlanError`` where none is."""
    attempts: list[Attempt] = []
    allowed = budget
    for _ in range(_MOST_ATTEMPTS):
        chosen = choose(parts, allowed, objective)
        found = score(search_half, chosen.recipe, "measuring a combination", tell)
        verified = None
        if found.harm.within(budget):
            verified = score(verification_half, chosen.recipe, "verifying it on unseen samples", tell)
        attempts.append(
            Attempt(
                budget=allowed,
                bytes=chosen.bytes,
                predicted=chosen.harm,
                search=harm_figures(found.harm),
                verification=None if verified is None else harm_figures(verified.harm),
            )
        )
        if verified is not None and verified.harm.within(budget):
            return Found(chosen, tuple(attempts), verified)
        broken = found.harm if verified is None else verified.harm
        excess = max(broken.measured, broken.estimate) / budget
        allowed = min(allowed, chosen.harm) * min(_STEP, _CARE / excess)
    raise PlanError(
        f"quantize: none of {len(attempts)} combinations is within the budget of {budget:.4%}; the last, solved for "
        f"{attempts[-1].budget:.4%}, changes NE by {broken.measured:+.4%} +- {broken.measured_se:.4%} on {broken.samples:,} "
        f"samples; raise --budget, or evaluate on more samples"
    )


def score(
    half: Half, recipe: Recipe, what: str = "scoring", tell: Tell = lambda what, done, total: None
) -> Scored:
    """Score a half with a recipe; ``what`` is the name of this work."""
    done, total = 0, len(half.label_B)

    def more(samples: int) -> None:
        nonlocal done
        done += samples
        tell(what, done, total)

    return half.score(recipe, more)
