"""Checks of the settings that error-bounded codecs share."""

from __future__ import annotations

import math

from laconic.errors import ConfigError


def check_bound(bound: float, where: str) -> None:
    """Raise unless ``bound`` is a positive finite number."""
    if isinstance(bound, bool) or not isinstance(bound, (int, float)):
        raise ConfigError(f"{where}.bound: expected a number, got {bound!r}")
    if not (math.isfinite(bound) and bound > 0):
        raise ConfigError(f"{where}.bound: expected a positive finite number, got {bound!r}")


def check_relative(relative: object, where: str) -> None:
    """Raise unless ``relative`` is what ``BoundedRows`` knows."""
    if relative is not False and relative is not True and relative != "rms":
        raise ConfigError(f"{where}.relative: expected False, True or 'rms', got {relative!r}")


def check_seed(seed: int | None, where: str) -> None:
    """Raise unless ``seed`` is None or fits 64 bits."""
    if seed is None:
        return
    if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**64:
        raise ConfigError(
            f"{where}.dither: expected an integer seed of at most 64 bits or None, got {seed!r}"
        )


def check_window(window: int, where: str) -> None:
    """Raise unless ``window`` is 1..255, what one byte of distance can name."""
    if isinstance(window, bool) or not isinstance(window, int) or not 1 <= window <= 255:
        raise ConfigError(f"{where}.window: expected 1..255 rows, got {window!r}")
