"""Labs on real namespaces; where the machine cannot make them, the tests skip and say why."""

from __future__ import annotations

import os
import select
import sys

import pytest

from laconic.lab import Lab

PATIENCE_S = 60


def python(script):
    return [sys.executable, "-c", script]


def wait_until_gone(pid):
    """Wait for the end of a process that need not be a child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([handle], [], [], PATIENCE_S)
    finally:
        os.close(handle)
    assert ready, f"process {pid} still runs"


@pytest.fixture(scope="module")
def pair(machine):
    """Two hosts for all tests of a module."""
    with Lab(hosts=2) as lab:
        yield lab
