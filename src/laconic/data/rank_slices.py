"""Who gets which samples of an epoch.

Global batch ``k`` is samples ``[k * global_batch, (k + 1) * global_batch)`` of the epoch's order; the last
one may be short. Of its ``n`` samples, rank ``r`` gets ``[r * n // ranks, (r + 1) * n // ranks)``, which may
be none. A ``start`` inside a batch yields the rest of that batch first, then whole ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from laconic.errors import ConfigError

__all__ = ["SPLITS", "check_split", "rank_slices"]

SPLITS = ("train", "eval")


def check_split(split: str) -> None:
    """Refuse a split that does not exist."""
    if split not in SPLITS:
        raise ConfigError(f"data: no split {split!r} (known: {', '.join(SPLITS)})")


def rank_slices(
    total: int, *, global_batch: int, rank: int, ranks: int, start: int = 0
) -> Iterator[tuple[int, int]]:
    """Positions ``[begin, end)`` of this rank in every global batch from ``start`` on.

    Every rank gets the same number of slices. Arguments are checked before the first one is asked for.
    """
    if global_batch < 1:
        raise ConfigError(f"data: global_batch must be at least 1, got {global_batch}")
    if not 0 <= rank < ranks:
        raise ConfigError(f"data: rank must be in 0..{ranks - 1} of {ranks} ranks, got {rank}")
    if not 0 <= start <= total:
        raise ConfigError(f"data: start must be in 0..{total}, got {start}; the epoch has {total} samples")
    return _slices(total, global_batch, rank, ranks, start)


def _slices(total: int, global_batch: int, rank: int, ranks: int, start: int) -> Iterator[tuple[int, int]]:
    begin = start
    while begin < total:
        end = min(begin - begin % global_batch + global_batch, total)
        count = end - begin
        yield begin + rank * count // ranks, begin + (rank + 1) * count // ranks
        begin = end
