"""``laconic tune``: measure what bounds save and harm, and choose them.

The help of the command says these figures, so nothing heavy is imported here.
"""

from __future__ import annotations

__all__ = ["MOST_STEPS", "SHARE"]

SHARE = 0.9
"""Part of an epoch that is trained before measuring: errors harm a trained model more than a new
one, and the tables that matter most still more (on The Complete Journey 1.6 times as much after 0.9
as after 0.7)."""

MOST_STEPS = 1200
"""Steps that are trained at most."""
