"""Step times on a real, rate-limited wire.

26 tables with Criteo Terabyte's cardinalities, Zipf lookups, Terabyte's MLPs, one rank per host, one
host per core: ranks that share a core would hide communication behind each other's work. Methods take
turns in one run. *Alone* is a rank's batch on that rank with nothing sent: what is left of a step if
communication costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.training.driver import Driver
from benchmarks.training.interval import paired_ratios
from benchmarks.training.jobs import Steps
from benchmarks.training.row import Row
from laconic.data import SyntheticSettings
from laconic.demo.measure import RunFigures, step_ms
from laconic.train.settings import ModelSettings

__all__ = ["PROFILE_SHARE", "Comparison", "Timing", "time_methods"]

PROFILE_SHARE = 0.855
"""Of a step that SC'24's profile spends communicating."""
_TOLERANCE, _ALLOWED = 0.01, 0.02  # when choosing a rate, when measured at it
_TERABYTE = ModelSettings(dim=64, bottom=(512, 256), top=(512, 512, 256))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Laconic's step time over another method's on the same wire, paired by round."""

    rate_mbit: float
    other: str
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Rows and comparisons of all rates."""

    rows: list[Row]
    comparisons: list[Comparison]


def time_methods(
    methods: Sequence[str],
    *,
    hosts: int,
    rates_mbit: Sequence[float],
    match_profile: bool,
    cap: int,
    rounds: int,
    steps: int,
    say: Callable[[str], None],
) -> Timing:
    """Time all methods at the rate that matches the profile, and at the others."""
    job = Steps(
        data=SyntheticSettings(kind="synthetic", cap=cap),
        model=_TERABYTE,
        methods=("alone", *methods),
        batch=1024,
        rounds=1,
        steps=1,
    )
    timing = Timing([], [])
    with Driver(hosts, lab=True, rate="200mbit") as driver:
        say("building tables")
        driver.time_steps(job)
        settings = [(rate, False) for rate in rates_mbit]
        if match_profile:
            say("looking for the rate that matches the profile")
            matching = _matching_rate(driver, job)
            settings = [(matching, True), *(other for other in settings if other[0] != matching)]
        for rate, wants_match in settings:
            say(f"timing at {rate:.0f} Mbit/s")
            driver.set_rate(f"{rate:.0f}mbit")
            answers = driver.time_steps(job.model_copy(update={"rounds": rounds, "steps": steps}))
            timing.rows.extend(_rows(answers, rate, hosts, wants_match))
            timing.comparisons.extend(_comparisons(answers, rate))
    return timing


def _matching_rate(driver: Driver, job: Steps) -> float:
    """Rate at which plain communicates for the profile's share of a step; time on the wire goes with 1 / rate."""
    rate = 200.0
    probe = job.model_copy(update={"methods": ("alone", "plain"), "rounds": 3, "steps": 2})
    for _ in range(5):
        answers = driver.time_steps(probe)
        alone, plain = step_ms(answers["alone"]), step_ms(answers["plain"])
        if abs(1 - alone / plain - PROFILE_SHARE) <= _TOLERANCE:
            break
        wanted = alone / (1 - PROFILE_SHARE)
        rate = round(min(max(rate * (plain - alone) / (wanted - alone), 10), 10_000))
        driver.set_rate(f"{rate:.0f}mbit")
    return rate


def _rows(answers: dict[str, RunFigures], rate: float, hosts: int, wants_match: bool) -> list[Row]:
    alone = step_ms(answers["alone"])
    # as run_figures, not as it was when the rate was chosen: a busy machine moves it
    matched = wants_match and abs(1 - alone / step_ms(answers["plain"]) - PROFILE_SHARE) <= _ALLOWED
    return [
        Row(
            kind="timing",
            data="synthetic",
            method=method,
            rate_mbit=rate,
            hosts=hosts,
            profile_matched=matched,
            step_ms=step_ms(answer),
            communication_share=max(0.0, 1 - alone / step_ms(answer)),
            bytes_forward=answer.bytes_forward,
            bytes_backward=answer.bytes_backward,
            bytes_ids=answer.bytes_ids,
            bytes_dense=answer.bytes_dense,
        )
        for method, answer in answers.items()
    ]


def _comparisons(answers: dict[str, RunFigures], rate: float) -> list[Comparison]:
    found = []
    for other, answer in answers.items():
        ours = "laconic_pairwise" if other.endswith("_pairwise") else "laconic"
        if ours in answers and other not in ("alone", ours):
            found.append(Comparison(rate, other, *paired_ratios(answers[ours].round_ms, answer.round_ms)))
    return found
