"""``laconic`` in a process of its own, as a person runs it, without the wait for torch."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.warm import python

PATIENCE_S = 240

_PROGRAM = "from laconic.cli import main; main()"
_HIDE = """
import sys
for name in [name for name in sys.modules if f"{{name}}.".startswith("{hidden}.")]:
    del sys.modules[name]
sys.modules["{hidden}"] = None
"""


def laconic(
    *arguments: object, cwd: Path | None = None, hidden: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, as if the ``hidden`` package were not installed."""
    before = "" if hidden is None else _HIDE.format(hidden=hidden)
    return subprocess.run(
        [*python(), "-c", before + _PROGRAM, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
