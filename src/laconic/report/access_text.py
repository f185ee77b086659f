"""Access statistics in words, the same on the screen and on the page."""

from __future__ import annotations

from laconic.numerals import NONE, share
from laconic.plan.access.access import Access, TableAccess

__all__ = ["bag_text", "distinct_text", "drift_text", "errors_text", "zipf_text"]


def distinct_text(table: TableAccess) -> str:
    """Rows that were looked up, with their interval, five standard errors, where they were not counted."""
    found = table.distinct
    reach = max(found.upper - found.rows, found.rows - found.lower)
    return f"{found.rows:,}" if not reach else f"{found.rows:,} ±{share(reach / found.rows)}"


def bag_text(table: TableAccess) -> str:
    """Mean length of bags, and the range where they differ."""
    if not table.bags:
        return NONE
    shortest, longest = table.bags[0][0], table.bags[-1][0]
    return f"{shortest}" if shortest == longest else f"{table.mean_bag:.2f} ({shortest}-{longest})"


def zipf_text(table: TableAccess) -> str:
    """Exponent and how far off the law is."""
    return NONE if table.zipf is None else f"{table.zipf.exponent:.2f} (KS {table.zipf.ks:.2f})"


def drift_text(table: TableAccess) -> str:
    """Distance, and what chance does to it."""
    return NONE if table.drift is None else f"{table.drift.distance:.3f} ±{table.drift.noise:.3f}"


def errors_text(access: Access) -> tuple[str, ...]:
    """Say what of all this is exact and how far off the rest may be, a sentence for every table."""
    estimated = [table for table in access.tables if not table.exact]
    exact = len(access.tables) - len(estimated)
    if not estimated:
        return ("All counts are exact.",)
    others = (f"All counts of the other {exact} tables are exact.",) if exact else ()
    return (*map(_estimate, estimated), *others)


def _estimate(table: TableAccess) -> str:
    counted = f"{table.name}: {distinct_text(table)} rows, {table.ids_H.size:,} of them counted one by one ({_missed(table)})"
    error = f" (standard error {share(table.sampled**-0.5)})" if table.sampled else ""
    return f"{counted}; the others are estimated from {table.sampled:,} drawn at random{error}."


def _missed(table: TableAccess) -> str:
    off = int((table.missed_H > 0).sum())
    if not off:
        return "all exactly"
    return f"{table.ids_H.size - off:,} exactly, {off:,} at most {int(table.missed_H.max()):,} too low"
