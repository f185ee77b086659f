"""Values as TOML text: what ``tomllib`` reads back as the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from laconic.errors import ConfigError

__all__ = ["toml_text"]


def toml_text(tree: Mapping[str, Any]) -> str:
    """Text of a tree of groups, lists of groups and plain values; None is left out, as TOML has no word for it."""
    return "\n".join(_group(tree, ())).strip() + "\n"


def _group(tree: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain, groups = [], []
    for name, value in tree.items():
        here = (*path, name)
        if value is None:
            continue
        if isinstance(value, Mapping):
            groups += ["", f"[{_path(here)}]", *_group(value, here)] if value else ["", f"[{_path(here)}]"]
        elif isinstance(value, Sequence) and value and all(isinstance(item, Mapping) for item in value):
            for item in value:
                groups += ["", f"[[{_path(here)}]]", *_group(item, here)]
        else:
            plain.append(f"{_key(name)} = {_value(value, here)}")
    return plain + groups


def _path(names: tuple[str, ...]) -> str:
    return ".".join(map(_key, names))


def _key(name: str) -> str:
    bare = name and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    return name if bare else _string(name)


def _value(value: Any, path: tuple[str, ...]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(str(value))
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Sequence):
        return f"[{', '.join(_value(item, path) for item in value)}]"
    raise ConfigError(f"{'.'.join(path)}: TOML has no {type(value).__name__}, got {value!r}")


def _string(text: str) -> str:
    """Quote as TOML does: as JSON, but that DEL is a control character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
