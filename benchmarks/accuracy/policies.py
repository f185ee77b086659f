"""What is compared with exact runs: defaults, policies that adapt, and policies that are bad.

``default``, ``auto`` and ``tuned`` are what users have. The others answer one question each::

    levels, large    only gradients of the dense part travel in fewer bytes
    bad-...          fixed bounds far too wide, or of the wrong kind, under a guard, which may only
                     narrow them: does it keep its budget all the same?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from laconic.adapt import BUDGET
from laconic.adapt.settings import CompressionSettings
from laconic.errors import ConfigError

__all__ = ["COMPRESSIONS", "EXACT", "POLICIES", "expand_policies", "settings_of"]

EXACT: dict[str, Any] = {"rows": "exact", "gradients": "exact", "dense": "exact"}

_BAD: dict[str, dict[str, Any]] = {
    "rows-0.1": {"rows": {"bound": 0.1}},
    "rows-0.4": {"rows": {"bound": 0.4}},
    "rows-unbiased": {"rows": {"bound": 0.4, "rounding": "unbiased"}},
    "gradients-1": {"gradients": {"bound": 1.0}},
    "gradients-4": {"gradients": {"bound": 4.0}},
    "gradients-nearest": {"gradients": {"bound": 1.0, "rounding": "nearest"}},
    "equal-tables": {"rows": {"bound": 0.1}, "gradients": {"bound": 1.0}, "by_rows": False},
    "absolute": {
        "rows": {"bound": 0.5, "relative_to": "none"},
        "gradients": {"bound": 1e-3, "relative_to": "none"},
    },
    "wrong-scale": {
        "rows": {"bound": 2.0, "relative_to": "rms"},
        "gradients": {"bound": 0.3, "relative_to": "range"},
    },
    "some-tables": {"tables": {"c_[h-u]*": {"rows": {"bound": 0.4}, "gradients": {"bound": 4.0}}}},
}
"""Bounds that would cost percents without a guard; the last are of single tables."""

COMPRESSIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "auto": {"policy": "auto"},
    "levels": {**EXACT, "dense": "levels"},
    "large": {**EXACT, "dense": "large"},
    **{f"bad-{name}": {**words, "budget": BUDGET} for name, words in _BAD.items()},
}
"""Words of ``[compression]`` by policy; those of ``tuned`` are found for each data set."""

POLICIES = (*COMPRESSIONS, "tuned")


def expand_policies(names: Sequence[str]) -> list[str]:
    """Return the policies that are asked for; ``bad`` stands for all bad ones."""
    found: list[str] = []
    for name in names:
        if name == "bad":
            found += [policy for policy in POLICIES if policy.startswith("bad-")]
        elif name in POLICIES:
            found.append(name)
        else:
            known = [policy for policy in POLICIES if not policy.startswith("bad-")]
            raise ConfigError(f"--policies: expected some of {', '.join(known)}, bad, got {name!r}")
    return found


def settings_of(policy: str) -> CompressionSettings:
    """Return the settings of a policy that needs no data to be found."""
    return CompressionSettings.model_validate(COMPRESSIONS[policy])
