"""Crews on loopback without the wait for python and torch; those in the lab start as ever."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from benchmarks import crew
from tests.benchmarks.forked_rank import ForkedRank


@pytest.fixture(scope="package", autouse=True)
def forked_ranks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crew, "subprocess", SimpleNamespace(Popen=ForkedRank, STDOUT=subprocess.STDOUT))
        yield
