"""Where a command's results go: tables for people, JSON for machines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError
from laconic.files import json_text


def check_json_file(file: Path | None) -> None:
    """Refuse a file that cannot be written now, not after the run."""
    if file is not None and not file.parent.is_dir():
        raise ConfigError(f"--json: no folder {str(file.parent)!r} to write into; make it first")


def write_json(value: Any, file: Path | None) -> None:
    """Write JSON to a file, or to standard output where it is None or ``-``."""
    text = json_text(value)
    if file is None or str(file) == "-":
        sys.stdout.write(text)
    else:
        file.write_text(text)
