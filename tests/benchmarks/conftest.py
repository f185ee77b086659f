"""Pools whose ranks are forked from a process that has imported torch."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from benchmarks import workers
from laconic.lab import Lab
from tests.warm import python


def warm(command):
    """The same, where ``command`` begins with python."""
    return [*python(), *command[1:]]


class WarmLab(Lab):
    """A lab whose hosts start python in a moment."""

    def start(self, command, **options):
        return super().start(warm(command), **options)


def warm_popen(command, **options):
    return subprocess.Popen(warm(command), **options)


@pytest.fixture(scope="package", autouse=True)
def forked_ranks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "subprocess", SimpleNamespace(Popen=warm_popen, STDOUT=subprocess.STDOUT))
        patch.setattr(workers, "Lab", WarmLab)
        yield
