"""What to write where a codec is expected and something else was given."""

from __future__ import annotations

from laconic.codecs.batch import BlockCodec
from laconic.errors import ConfigError

__all__ = ["expect_codec"]

_BLOCK_CODECS = {
    "bounded": 'laconic.Bounded(bound=0.35, relative="rms", dither=0)',
    "boundedrows": "laconic.BoundedRows(bound=0.01, relative=True)",
    "cast": 'laconic.Cast(dtype="fp16")',
    "lossless": "laconic.Lossless()",
}


def expect_codec(where: str, value: object, *others: type) -> None:
    """Refuse all but ``None``, a codec of float32 values, and instances of ``others``."""
    if value is None or isinstance(value, (BlockCodec, *others)):
        return
    examples = {other.__name__.lower(): f"laconic.{other.__name__}()" for other in others} | _BLOCK_CODECS
    name = value if isinstance(value, str) else getattr(value, "__name__", "")
    meant = examples.get(name.lower().replace("_", ""))
    shown = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
    raise ConfigError(
        f"{where}: expected a codec of float32 or None, got {shown}; "
        f"write {meant or ', '.join(examples.values())}"
    )
