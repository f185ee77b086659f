"""Files and folders that are there whole or not at all, and JSON that every reader takes."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["finite", "json_text", "whole_file", "whole_folder", "write_whole"]


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Open a file that becomes ``path`` at the end; on an error the old one stays."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        yield Path(name)
        _publish(Path(name))
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Open a folder that becomes ``path`` once all is on the disk, or vanishes on an error."""
    partial = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial"))
    try:
        yield partial
        for inside in [*partial.rglob("*"), partial]:
            _publish(inside)
            handle = os.open(inside, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _publish(path: Path) -> None:
    """Let others read what is temporary and therefore private, as far as the process lets them."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def write_whole(path: Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all; on an error an existing file stays as it was."""
    with whole_file(path) as partial:
        partial.write_bytes(text.encode())


def finite(tree: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by None, at any depth."""
    if isinstance(tree, dict):
        return {key: finite(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [finite(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def json_text(tree: Any) -> str:
    """Write for people and for every reader: indented, null for what is not finite."""
    return json.dumps(finite(tree), indent=2, allow_nan=False) + "\n"
