"""One artifact for all tests of the server; none of them changes it."""

from __future__ import annotations

import pytest

from tests.serve.served import load_from, running, write_small_artifact


@pytest.fixture(scope="session")
def artifact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "artifact"
    write_small_artifact(folder)
    return folder


@pytest.fixture(scope="module")
def server(artifact):
    with running(load_from(artifact)) as server:
        yield server
