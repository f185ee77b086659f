"""Speeds of a rank's own work: codecs, rows in memory, and transfers behind computation.

Defaults were measured on one thread of a Xeon with AVX2. A run on the machine at hand measures
codecs better: ``laconic train --json`` writes the time of encoding and decoding.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from laconic.config import Settings
from laconic.errors import ConfigError, FormatError

__all__ = ["EngineSpeeds", "read_speeds"]


class EngineSpeeds(Settings):
    """Speeds that turn bytes and rows into seconds."""

    encode_gb_s: float = Field(default=2.0, gt=0)
    """Speed of encoding, in 10^9 bytes of float32 per second. Values that are sent as they are take
    no time."""

    decode_gb_s: float = Field(default=3.0, gt=0)
    """Speed of decoding, in 10^9 bytes of float32 per second."""

    gather_ns: float = Field(default=45.0, ge=0)
    """Time to read a row from memory or to add it to a bag, in nanoseconds. It is 22 for 16
    dimensions, 76 for 64."""

    update_ns: float = Field(default=40.0, ge=0)
    """Time to add a gradient to its row's sum, with a share of the update, in nanoseconds. It is 24
    for 16 dimensions, 59 for 64."""

    overlap: float = Field(default=0.25, ge=0, le=1)
    """Share of computation that hides rows, gradients and ids: that of the bottom MLP, forward and
    backward."""

    dense_overlap: float = Field(default=0.4, ge=0, le=1)
    """Share of computation that hides dense gradients: the backward pass without its first layers,
    before which there are no gradients."""

    prefetch_overlap: float = Field(default=0.4, ge=0, le=1)
    """Share of computation that hides prefetched rows of the next step: the rest of it, less the
    time to find these rows."""

    prefetch_ns: float = Field(default=500.0, ge=0)
    """Time to find out that a row can be prefetched and to put it in its place, in nanoseconds,
    beyond the exchange of all rows."""


def read_speeds(path: Path, given: EngineSpeeds) -> EngineSpeeds:
    """Take the speeds of codecs from a file of ``laconic train --json``; others stay as given."""
    try:
        ledger = json.loads(path.read_text(encoding="utf-8"))["ledger"]
        moved = [row for row in ledger if row["direction"] in ("forward", "backward")]
        before = sum(row["bytes_before"] for row in moved)
        took = {name: sum(row[f"{name}_ms"] for row in moved) for name in ("encode", "decode")}
        found: dict[str, Any] = {f"{name}_gb_s": before / (1e6 * ms) for name, ms in took.items() if ms > 0}
        return EngineSpeeds.model_validate(given.model_dump() | found)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError) as error:
        what = (
            "implausible speeds" if isinstance(error, ValidationError) else f"{type(error).__name__}: {error}"
        )
        raise FormatError(
            f"{path}: expected what `laconic train --json` writes, got something else ({what})"
        ) from None
