"""One artefact for all tests of the server; none of them changes it."""

from __future__ import annotations

import pytest

from tests.serve.served import load_from, running, write_small_artefact


@pytest.fixture(scope="session")
def artefact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "artefact"
    write_small_artefact(folder)
    return folder


@pytest.fixture(scope="module")
def server(artefact):
    with running(load_from(artefact)) as server:
        yield server
