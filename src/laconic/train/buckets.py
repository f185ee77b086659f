"""How large the buckets are in which dense gradients travel.

DDP fills a bucket in the order in which gradients come, and sends it once it holds at least so many bytes. Layers of the head come
first; those of the bottom MLP after the rows' gradients, at the very end of the backward pass. What shares a bucket with
them waits for them, so a bucket should end where the head does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from laconic.models import Model

__all__ = ["bucket_cap_mb"]

_EXACT_MB = 0.5
"""Small: the last layers' gradients travel while the rest is computed."""
_CODED_MB = 1.0
"""Where they are compressed, a round of messages takes longer than the bytes of a small bucket."""

_BOTTOM = "bottom."  # of models that have one


def bucket_cap_mb(model: Model, *, coded: bool) -> float:
    """Return the largest capacity, within reason, that lets a bucket end where the head's gradients do."""
    if not coded:
        return _EXACT_MB
    sizes: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        if not name.startswith(_BOTTOM):
            sizes[name.rpartition(".")[0]] += parameter.numel() * parameter.element_size()
    arriving = [*sizes.values()][::-1]
    for first in range(len(arriving)):
        cap = sum(arriving[first:])
        if _EXACT_MB * 2**20 <= cap <= _CODED_MB * 2**20 and _left_over(arriving[:first], cap) == 0:
            return cap / 2**20
    return _CODED_MB


def _left_over(sizes: Sequence[int], cap: int) -> int:
    """Bytes that wait for more to come after layers of these sizes."""
    waiting = 0
    for size in sizes:
        waiting = 0 if waiting + size >= cap else waiting + size
    return waiting
