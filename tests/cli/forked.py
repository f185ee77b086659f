"""``laconic`` in a process of its own, forked from one that has imported torch: as a person runs it, without the wait."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory

from tests.distributed.ranks import server

PATIENCE_S = 240


def laconic(
    *arguments: object, cwd: Path | None = None, hidden: str | None = None, **environment: str
) -> CompletedProcess[str]:
    """Run the command to its end, as if the ``hidden`` package were not installed."""
    words = [str(argument) for argument in arguments]
    with TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = server().Process(
            target=_main, args=(words, (out, err), cwd or Path.cwd(), hidden, environment)
        )
        process.start()
        process.join(PATIENCE_S)
        if process.exitcode is None:
            process.kill()
            raise AssertionError(f"laconic {' '.join(words)}: still runs after {PATIENCE_S} s")
        return CompletedProcess(words, process.exitcode, out.read_text(), err.read_text())


def _main(
    words: Sequence[str],
    files: tuple[Path, Path],
    cwd: Path,
    hidden: str | None,
    environment: dict[str, str],
) -> None:
    from laconic.cli import main

    os.environ.update(environment)
    if hidden is not None:
        for name in [name for name in sys.modules if f"{name}.".startswith(f"{hidden}.")]:
            del sys.modules[name]
        sys.modules[hidden] = None
    for descriptor, path in enumerate(files, start=1):
        os.dup2(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), descriptor)
    os.chdir(cwd)
    sys.argv = ["laconic", *words]
    main()
