"""What a step is made of, as the SC'24 paper divides it: forward, backward, all-reduce, compute.

forward      ids and rows: encoding, the wire and decoding
backward     the same for their gradients
compute      the same batch on one rank with nothing sent
all-reduce   the rest of the step: dense gradients, and waiting for the slowest

Ids and rows of the next batch travel while this one is computed, so that parts may overlap and add up to
more than a step; there is no rest then.
"""

from __future__ import annotations

from dataclasses import dataclass

from laconic.demo.measure import RunFigures, step_ms

__all__ = ["Parts", "bar", "parts_of"]

_GLYPHS = ("█", "▓", "▒", "░")
_WIDTH = 40


@dataclass(frozen=True, slots=True)
class Parts:
    """Milliseconds of a step."""

    forward: float
    backward: float
    all_reduce: float
    compute: float

    def each(self) -> tuple[float, float, float, float]:
        """All of them, in the order of the paper."""
        return self.forward, self.backward, self.all_reduce, self.compute


def parts_of(answer: RunFigures, alone: RunFigures) -> Parts:
    """Divide the median step of a method; ``alone`` is one rank that sends nothing."""
    forward, backward = answer.ms_ids + answer.ms_forward, answer.ms_backward
    compute = step_ms(alone)
    return Parts(forward, backward, max(step_ms(answer) - forward - backward - compute, 0.0), compute)


def bar(parts: Parts, longest_ms: float) -> str:
    """Draw a bar of as many characters as the parts deserve beside the longest."""
    ends = [0]
    passed = 0.0
    for part in parts.each():
        passed += part
        ends.append(round(_WIDTH * passed / longest_ms) if longest_ms else 0)
    pieces = zip(_GLYPHS, ends, ends[1:], strict=False)
    return "".join(glyph * (end - begin) for glyph, begin, end in pieces)
