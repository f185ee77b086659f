"""What a rank's own work takes: codecs, rows in memory, and what hides behind computation.

Defaults are those of one thread of a Xeon with AVX2. A run of one's own measures them better: ``laconic train
--json`` writes what encoding and decoding took.
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
    """Seconds behind bytes and rows."""

    encode_gb_s: float = Field(default=2.0, gt=0)
    """Of float32 that a codec turns into fewer bytes, in 10^9 bytes per second. What travels
    exactly takes no time."""

    decode_gb_s: float = Field(default=3.0, gt=0)
    """Of float32 that come out of a codec."""

    gather_ns: float = Field(default=45.0, ge=0)
    """To fetch a row from memory, or to add it to a bag; 22 for 16 dimensions, 76 for 64."""

    update_ns: float = Field(default=40.0, ge=0)
    """To add a gradient to its row's, and a share of the update; 24 for 16 dimensions, 59 for
    64."""

    overlap: float = Field(default=0.25, ge=0, le=1)
    """Share of computation during which rows, gradients and ids travel: the bottom MLP's, forward
    and backward."""

    dense_overlap: float = Field(default=0.4, ge=0, le=1)
    """Share of computation during which dense gradients travel: the backward pass, but for its
    first layers, before which there are none."""

    look_ahead: float = Field(default=0.4, ge=0, le=1)
    """Share of computation during which rows of the next step can travel: the rest of it, but for
    what finding them takes."""

    early_ns: float = Field(default=500.0, ge=0)
    """To find out that a row may travel early, and to put it in its place: what it takes beyond the
    exchange of all rows."""


def read_speeds(path: Path, given: EngineSpeeds) -> EngineSpeeds:
    """Take the codecs' speeds from what ``laconic train --json`` wrote; others stay as given."""
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
