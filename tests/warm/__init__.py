"""Python that starts in a moment: forked from a process that has imported torch, also on a host of the lab.

Torch and its compiler take a core six seconds to import, and tests start more than a hundred processes.
"""

from __future__ import annotations

import atexit
import shutil
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from time import sleep

from tests.distributed import ranks
from tests.warm import client
from tests.warm.server import serve


@cache
def python() -> tuple[str, ...]:
    """Return what to type instead of ``sys.executable``, before ``-c PROGRAM`` or ``-m MODULE``."""
    folder = Path(mkdtemp(prefix="laconic-warm-"))
    folder.chmod(0o755)
    path = folder / "socket"
    process = ranks.server().Process(target=serve, args=(str(path),), daemon=True)
    process.start()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    while not path.exists():
        assert process.is_alive(), "the server of warm processes ended"
        sleep(0.01)
    return sys.executable, "-I", "-S", client.__file__, str(path)
