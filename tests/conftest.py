"""Fixtures of several tests: data and a lab that may be absent, and settings of hypothesis."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
from pathlib import Path

# Set before torch is imported, and inherited by every rank. Otherwise the order in which MKL adds
# depends on processor, threads and alignment, and tests that compare runs bit for bit would see it
# (on AMD processors they do).
os.environ.setdefault("MKL_CBWR", "COMPATIBLE")
# Two workers and their ranks share two cores; threads that spin while they wait take most of it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts background jobs with SIGINT ignored, and their children inherit it: Ctrl-C would
# end no rank.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import HealthCheck, settings
from xdist import is_xdist_controller, is_xdist_worker

from tests.distributed.ranks import fork_server

gc.disable()  # until everything is imported: nothing of it is garbage

settings.register_profile(
    "default", deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("default"), max_examples=15)
settings.load_profile("default")

_DUMPS = Path(
    os.environ.get("LACONIC_TEST_DUMPS", Path(__file__).parents[2] / "shared" / "data" / "embeddings")
)


SLOW = (
    *("docs", "convergence", "benchmarks", "reduce/network", "lab", "distributed", "adapt/tune", "quantize"),
    *("train", "examples", "serve", "reduce", "integrations", "cli"),
    *("data/test_contract.py", "hostile/test_damaged_blocks.py", "plan/test_planner.py"),
    *("plan/test_profile.py", "kernels/test_small_blocks.py", "kernels/test_backends_agree.py"),
    *("data/test_parquet.py", "data/test_prepare.py", "adapt/test_economy.py"),
    "adapt/test_evidence.py",
)
"""What starts ranks, builds labs, trains or searches: the slowest first."""


def _place(path):
    """Which of these a file or folder belongs to."""
    inside = f"{path.relative_to(Path(__file__).parent)}/"
    found = [number for number, slow in enumerate(SLOW) if inside.startswith(f"{slow}/")]
    return found[0] if found else len(SLOW)


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="Leave out ranks, labs, training and benchmarks.")


def pytest_configure(config):
    if config.getoption("--quick"):
        settings.load_profile("quick")


def pytest_sessionstart(session):
    if not is_xdist_controller(session):  # which hands tests out only, and need not import torch
        import torch

        torch.manual_seed(0)
    if is_xdist_worker(session) and not session.config.getoption("--quick"):
        fork_server()


def pytest_collection_finish():
    """Look for garbage only in what tests make; in all that was imported it takes half a second."""
    gc.freeze()
    gc.enable()


def pytest_ignore_collect(collection_path, config):
    if not config.getoption("--quick") or collection_path == Path(__file__).parent:
        return None
    return _place(collection_path) < len(SLOW) or None


def pytest_collection_modifyitems(items):
    """Begin with what takes long, so that no worker is left with it alone at the end."""
    items.sort(key=lambda item: _place(item.path))


@pytest.fixture(scope="session")
def machine():
    """A machine that can run a lab; or skip."""
    from laconic.lab import check

    lacking = [f"{fact.name}: {fact.detail}; {fact.remedy}" for fact in check(gloo=False) if fact.ok is False]
    if lacking:
        pytest.skip(f"no lab on this machine: {lacking[0]}")


@pytest.fixture
def dump():
    """Load NAME_ROWSxDIM.f32 from the folder of real embedding batches, or skip."""
    import torch

    def load(name):
        path = _DUMPS / f"{name}.f32"
        if not path.exists():
            pytest.skip(f"no {path}; set LACONIC_TEST_DUMPS to the folder of the SC'24 authors' dumps")
        rows, cols = map(int, name.rpartition("_")[2].split("x"))
        return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32).view(rows, cols)

    return load


@pytest.fixture
def small_disk(tmp_path):
    """Return a disk of 100 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no right to mount a small disk: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
