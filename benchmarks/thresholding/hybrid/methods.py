"""The ways to train that are compared: one model, one division, one wire; only what travels differs.

======= ======================================== ==============================================
method  activations and their gradients          gradients of parameters
======= ======================================== ==============================================
alone   nothing is sent: others' are constants   each rank's own
plain   float32, all of them                     ``DistributedDataParallel`` as it is, on gloo
hybrid  the largest tenth of a row (DCT-MP)      the largest hundredth of a layer (DCT-DP)
rounded the same, within 0.1 and 0.5 of RMS      the same
======= ======================================== ==============================================

Masks are bits: cores are what a step waits for here. Embedding rows travel exactly in all: the paper's levels are those
of MLPs.
"""

from __future__ import annotations

from dataclasses import dataclass

from laconic.codecs.threshold import Threshold
from laconic.errors import ConfigError
from laconic.reduce import LargeFirst

__all__ = ["METHODS", "Method", "find_method"]


@dataclass(frozen=True, slots=True)
class Method:
    """One way to send."""

    name: str
    threshold: Threshold | None
    """At splits; None: nothing is sent at all."""
    large: LargeFirst | None
    """Of gradients; None: all of them."""


_LARGE = LargeFirst(keep=0.01)
METHODS = {
    method.name: method
    for method in (
        Method("alone", None, None),
        Method("plain", Threshold.exact(), None),
        Method("hybrid", Threshold(keep=0.1, mask="bits", values=None, gradients=None), _LARGE),
        Method("rounded", Threshold(keep=0.1, mask="bits"), _LARGE),
    )
}


def find_method(name: str) -> Method:
    """Return a method by name."""
    if name not in METHODS:
        raise ConfigError(f"bench: no such method {name!r} (known: {', '.join(METHODS)})")
    return METHODS[name]
