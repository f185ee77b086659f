"""Files that are there whole or not at all, and JSON that every reader takes."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["finite", "json_text", "whole_file", "write_whole"]


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Open a file to write into, which becomes ``path`` at the end; a file that is there stays if anything goes wrong."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        yield Path(name)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # temporary files are private
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def write_whole(path: Path, text: str) -> None:
    """Write text as UTF-8; a file that is there is replaced, and stays as it was if anything goes wrong."""
    with whole_file(path) as partial:
        partial.write_bytes(text.encode())


def finite(tree: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by None, also inside of dictionaries and lists."""
    if isinstance(tree, dict):
        return {key: finite(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [finite(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def json_text(tree: Any) -> str:
    """Write for people and for every reader: indented, null for what is not finite."""
    return json.dumps(finite(tree), indent=2, allow_nan=False) + "\n"
