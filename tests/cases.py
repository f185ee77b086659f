"""Many small cases in one test, because a test takes pytest longer than most of these cases."""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 100


def each(
    names: str | tuple[str, ...], values: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run all cases as ``pytest.mark.parametrize`` does, but in one test; name those that failed.

    Cases share the fixtures of the test. Decorators that stand above each other make all pairs.
    """
    keys = (names,) if isinstance(names, str) else names
    given = [dict(zip(keys, (value,) if isinstance(names, str) else value, strict=True)) for value in values]
    assert given, f"no cases of {names}"

    def in_one(test: Callable[..., None]) -> Callable[..., None]:
        check: Callable[..., None] = getattr(test, "check", test)
        cases = [{**outer, **inner} for outer in given for inner in getattr(test, "cases", [{}])]

        @functools.wraps(test)
        def every_case(**fixtures: Any) -> None:
            failures: dict[str, BaseException] = {}
            for case in cases:
                try:
                    check(**fixtures, **case)
                # a case that skips would take the others with it, and what has failed before
                except (Exception, pytest.fail.Exception, pytest.skip.Exception) as failure:
                    name = ", ".join(f"{key}={_SHORT.repr(value)}" for key, value in case.items())
                    failure.add_note(f"in the case {name}")
                    failures[f"{len(failures) + 1}. {name}"] = failure
            if failures:
                text = f"{len(failures)} of {len(cases)} cases failed:\n" + "\n".join(failures) + "\n"
                raise BaseExceptionGroup(text, list(failures.values()))

        signature = inspect.signature(test)
        others = [value for key, value in signature.parameters.items() if key not in keys]
        assert len(others) == len(signature.parameters) - len(keys), f"no parameters {names}"
        every_case.__dict__.update(
            check=check, cases=cases, __signature__=signature.replace(parameters=others)
        )
        return every_case

    return in_one
