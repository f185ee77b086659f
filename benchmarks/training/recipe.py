"""How each real data set is trained: the rates that train it best with exact communication.

On The Complete Journey, 0.05 with a warm-up takes the AUC of an epoch from 0.974 to 0.983 and its standard
deviation over seeds from 0.0033 to 0.0004. Without them, first steps decide which of several plateaus a run
ends on, and any perturbation at all may change that.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Recipe", "recipe_for"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Learning rates, and the steps over which they warm up."""

    rows: float = 0.02
    dense: float = 0.02
    warmup: int = 0


_RECIPES = {"complete_journey": Recipe(rows=0.05, warmup=100)}


def recipe_for(data: str) -> Recipe:
    """Return the recipe of a data set by its name."""
    return _RECIPES.get(data, Recipe())
