"""``auto`` on real links: is it as fast as the best fixed way to send, whatever the link?

The setting is that of ``python -m benchmarks train``: two pinned hosts, Criteo Terabyte's tables, Zipf lookups. Guard and
economy of ``auto`` have settled before the clock starts; their later reviews, ever further apart, are not in
these times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.adaptation.parts import parts_of
from benchmarks.adaptation.row import Row
from benchmarks.results import paired_ratios
from benchmarks.training.worker import Steps, TrainingPool
from laconic.data import SyntheticSettings
from laconic.demo.measure import RunFigures, step_ms
from laconic.train.settings import ModelSettings

__all__ = ["time_policies"]

_HOSTS = 2
_FIXED = ("plain_pairwise", "fp16_pairwise", "int8_pairwise", "rows_fp32_pairwise", "laconic_pairwise")
_MODEL = ModelSettings(dim=64, bottom=(512, 256), top=(512, 512, 256))
_CAP = 300_000


def time_policies(
    rates_mbit: Sequence[float | None], *, rounds: int, say: Callable[[str], None]
) -> list[Row]:
    """Time all policies at each rate; None: loopback."""
    rows: list[Row] = []
    limited = [rate for rate in rates_mbit if rate is not None]
    if limited:
        with TrainingPool(_HOSTS, rate_mbit=limited[-1]) as driver:
            for rate in sorted(limited, reverse=True):  # settling is quickest on the fastest link
                driver.set_rate(rate)
                say(f"timing at {rate:.0f} Mbit/s")
                rows += _rows(_time(driver, rounds), rate)
    if None in rates_mbit:
        with TrainingPool(_HOSTS) as driver:
            say("timing on loopback")
            rows += _rows(_time(driver, rounds), None)
    return rows


def _time(driver: TrainingPool, rounds: int) -> dict[str, RunFigures]:
    job = Steps(
        data=SyntheticSettings(kind="synthetic", cap=_CAP),
        model=_MODEL,
        methods=("alone", *_FIXED, "auto"),
        batch=1024,
        rounds=rounds,
        steps=3,
    )
    return driver.time_steps(job)


def _rows(answers: dict[str, RunFigures], rate: float | None) -> list[Row]:
    best = min(_FIXED, key=lambda name: step_ms(answers[name]))
    rows = []
    for name, answer in answers.items():
        if name == "alone":
            continue
        off = sum(
            table[direction] is None or not str(table[direction]).startswith("Bounded")
            for table in answer.tables
            for direction in ("forward", "backward")
        )
        rows.append(
            Row(
                data="synthetic",
                policy=name.removesuffix("_pairwise"),
                rate_mbit=rate,
                step_ms=step_ms(answer),
                ratio_to_best=paired_ratios(answer.round_ms, answers[best].round_ms)
                if name == "auto"
                else None,
                parts_ms=parts_of(answer, answers["alone"]),
                bypassed_tables=off if name == "auto" else None,
            )
        )
    return rows
