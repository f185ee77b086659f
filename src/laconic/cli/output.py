"""Where a command's results go: tables for people, JSON for machines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def write_json(value: Any, file: Path | None) -> None:
    """Write JSON to a file, or to standard output where it is None or ``-``."""
    text = json.dumps(value, indent=2) + "\n"
    if file is None or str(file) == "-":
        sys.stdout.write(text)
    else:
        file.write_text(text)
