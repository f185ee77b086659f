"""A rank of a crew on loopback, forked from a process that has imported torch instead of starting python anew."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from typing import IO, Any

from tests.distributed.ranks import server


class ForkedRank:
    """What ``Crew`` wants of ``subprocess.Popen``, for a command ``python -m MODULE ARGUMENT...``."""

    def __init__(self, command: Sequence[str], env: dict[str, str], stdout: IO[Any], stderr: int) -> None:
        del stderr  # goes to the same log
        python, option, module, *arguments = command
        assert (python, option) == (sys.executable, "-m")
        self._process = server().Process(target=_main, args=(module, arguments, env, stdout.name))
        self._process.start()

    def poll(self) -> int | None:
        """Exit code of one that has ended."""
        code: int | None = self._process.exitcode
        return code

    def wait(self) -> int | None:
        """Exit code."""
        self._process.join()
        return self.poll()

    def kill(self) -> None:
        """End it."""
        self._process.kill()


def _main(module: str, arguments: list[str], env: dict[str, str], log: str) -> None:
    written = os.open(log, os.O_WRONLY | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(written, descriptor)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
