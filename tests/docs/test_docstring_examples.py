"""Every public name shows in its docstring how it is used, and what it shows is what happens.

Examples see ``laconic`` and ``torch``, and run in a job of one rank: a process group is there.
"""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

import laconic

WITHOUT = {
    "LaconicError",
}
"""Names that have no example yet. The list only shrinks: a new name has an example."""


def examples_of(name: str) -> list[doctest.DocTest]:
    """Find what the docstrings of a name and of its methods show."""
    names: dict[str, Any] = {"laconic": laconic, "torch": torch}
    found = doctest.DocTestFinder(exclude_empty=True).find(getattr(laconic, name), name, globs=names)
    return [test for test in found if test.examples]


@pytest.fixture(scope="module")
def job_of_one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("name", laconic.__all__)
def test_every_public_name_has_an_example_that_runs(name, job_of_one_rank):
    tests, said = examples_of(name), list[str]()
    for test in tests:
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert not said, "".join(said)
    if name in WITHOUT:
        assert not tests, f"{name} has an example now: take it out of WITHOUT"
    else:
        assert tests, f"{name} has no example: add one to its docstring"


def test_names_that_have_no_example_yet_are_public_names():
    assert set(laconic.__all__) >= WITHOUT
