"""What dense gradients can travel as, and what to write where something else was given."""

from __future__ import annotations

from laconic.codecs.batch import BlockCodec
from laconic.codecs.codec import expect_codec
from laconic.errors import ConfigError
from laconic.reduce.ways.coded import Levels
from laconic.reduce.ways.dense import Exact
from laconic.reduce.ways.large_first import LargeFirst
from laconic.reduce.ways.rounded import Adder, Rounded

__all__ = ["GradientMethod", "expect_gradient_method"]

GradientMethod = Exact | BlockCodec | Levels | LargeFirst | Rounded | Adder
"""Exact, a codec of float32, levels, large entries first, or integers that ranks or a network
add."""


def expect_gradient_method(where: str, value: object) -> None:
    """Raise ``ConfigError`` unless gradients can travel so."""
    if isinstance(value, type) and issubclass(value, LargeFirst):
        raise ConfigError(f"{where}: got the class LargeFirst; write laconic.LargeFirst(0.01)")
    adds = hasattr(value, "unite") and not isinstance(value, type)
    if not isinstance(value, Exact | LargeFirst | Rounded) and not adds:
        expect_codec(where, value, Levels)
