"""Nested dictionaries as TOML text: what ``config`` reads back as they were."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["toml_text"]


def toml_text(tree: Mapping[str, Any]) -> str:
    """Write groups after values, each with its full name; values are strings, numbers, booleans, or lists of them."""
    return "\n".join(_lines(tree, ())).lstrip("\n") + "\n"


def _lines(tree: Mapping[str, Any], place: tuple[str, ...]) -> list[str]:
    values = [
        f"{_key(key)} = {_value(value)}" for key, value in tree.items() if not isinstance(value, Mapping)
    ]
    groups = [(key, value) for key, value in tree.items() if isinstance(value, Mapping)]
    heading = ["", f"[{'.'.join(map(_key, place))}]"] if place and (values or not groups) else []
    return heading + values + [line for key, value in groups for line in _lines(value, (*place, key))]


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _string(key)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _string(text: str) -> str:
    """Quote as TOML does: as JSON, but that DEL is a control character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
