"""Numbers as people read them: three significant digits, a unit, a real minus sign."""

from __future__ import annotations

from decimal import Decimal

__all__ = ["NONE", "bytes_text", "change", "decimals", "milliseconds", "plain", "share", "three", "times"]

NONE = "\N{EN DASH}"
_TIMES, _MINUS = "\N{MULTIPLICATION SIGN}", "\N{MINUS SIGN}"
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def plain(value: float) -> str:
    """Write up to three significant digits, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{Decimal(f'{value:.3g}'):f}"


def three(value: float) -> str:
    """Write three significant digits, zeros too, so that figures in a column look alike."""
    digits = 0 if not value else max(0, 2 - Decimal(f"{value:.2e}").adjusted())
    return f"{value:,.{digits}f}"


def bytes_text(value: float) -> str:
    """Write bytes in decimal units: 1 kB is 1,000 bytes."""
    unit = 0
    while float(f"{value:.3g}") >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{three(value) if unit else plain(value)} {_UNITS[unit]}"


def milliseconds(value: float) -> str:
    """Write a time in milliseconds, or in seconds from ten seconds on."""
    return f"{three(value / 1000)} s" if value >= 10_000 else f"{three(value)} ms"


def share(value: float) -> str:
    """Write a share in percent, with two significant digits."""
    return f"{Decimal(f'{100 * value:.2g}'):f} %"


def times(value: float | None) -> str:
    """Write a ratio."""
    return NONE if value is None else f"{three(value)}{_TIMES}"


def decimals(value: float | None, places: int) -> str:
    """Write a figure of fixed precision."""
    return NONE if value is None else f"{value:.{places}f}".replace("-", _MINUS)


def change(value: float, places: int) -> str:
    """Write a difference with its sign; one that rounds to nothing has none."""
    text = f"{value:+.{places}f}"
    return f"±{text[1:]}" if not float(text) else text.replace("-", _MINUS)
