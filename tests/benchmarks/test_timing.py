import gc
from collections.abc import Callable

import torch

from benchmarks.timing import Trial, best_times


def recorded(name: str, log: list[str]) -> Trial:
    def encode() -> bytes:
        log.append(name)
        assert torch.get_num_threads() == 1
        assert not gc.isenabled()
        return name.encode()

    def decode(payload: bytes) -> str:
        log.append(payload.decode() + "'")
        return ""

    return Trial(encode, decode)


def first_turns(log: list[str], ticks: list[int]) -> Callable[[int], None]:
    """Note whose turn it was, and forget the calls of the turn."""

    def tick(i: int) -> None:
        assert len(set(log)) == 2
        log.clear()
        ticks.append(i)

    return tick


def test_trials_take_turns_and_rounds_start_with_another_one() -> None:
    log: list[str] = []
    ticks: list[int] = []
    best_times([recorded(name, log) for name in "abc"], 4, 0.0002, first_turns(log, ticks))
    assert ticks == [0, 1, 2, 1, 2, 0, 2, 0, 1, 0, 1, 2]


def test_a_turn_has_as_many_calls_as_fit_and_at_least_one() -> None:
    one: list[str] = []
    many: list[str] = []
    best_times([recorded("a", one)], 2, 0, lambda i: None)
    best_times([recorded("a", many)], 2, 0.01, lambda i: None)
    assert len(one) == 4
    assert len(many) > 4


def test_threads_and_garbage_collection_are_restored() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        times = best_times([recorded("a", [])], 1, 0, lambda i: None)
        assert torch.get_num_threads() == 2
        assert gc.isenabled()
        assert times[0].encode_s > 0
        assert times[0].decode_s > 0
    finally:
        torch.set_num_threads(before)
