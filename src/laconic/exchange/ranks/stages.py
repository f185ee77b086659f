"""An exchange in stages, so that one thread can take several ranks through it.

What a rank does in an exchange is a generator. It yields where it has sent all that the others need
before they can go on, and before it takes what they have sent. A rank that has a process of its own
goes through it at once (``finish``) and waits where a message is not there yet. Ranks that share a
thread take every stage in turn (``in_step``), and never wait.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeAlias, TypeVar

from laconic.exchange.ranks.worker import RefusedBatchError

__all__ = ["Stages", "finish", "in_step"]

Result = TypeVar("Result")
Stages: TypeAlias = Generator[None, None, Result]


def finish(stages: Stages[Result]) -> Result:
    """Take all stages that are left, and return what they come to."""
    while True:
        try:
            next(stages)
        except StopIteration as end:
            result: Result = end.value
            return result


def in_step(ranks: Sequence[Stages[Result]]) -> Stages[list[Result]]:
    """Take each stage on all ranks before the next; returns the results of all.

    All ranks refuse a batch in the same stage, so the next batch finds them in step.
    """
    results: dict[int, Result] = {}
    while len(results) < len(ranks):
        refused: RefusedBatchError | None = None
        for rank, stages in enumerate(ranks):
            try:
                if rank not in results:
                    next(stages)
            except StopIteration as end:
                results[rank] = end.value
            except RefusedBatchError as error:
                refused = refused or error
        if refused is not None:
            raise refused
        if len(results) < len(ranks):
            yield
    return [results[rank] for rank in range(len(ranks))]
