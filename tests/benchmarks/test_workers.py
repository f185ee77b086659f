"""The rate of links at which steps communicate for a share of their time."""

from __future__ import annotations

import pytest

from benchmarks.workers import WorkerPool

ALONE_MS = 10.0


class Links(WorkerPool):
    """Links without ranks: a transfer takes a constant time, and time that goes with 1 / rate."""

    def __init__(self, rate: float, fixed_ms: float = 0.0) -> None:
        super().__init__("no.module", 2, rate_mbit=rate)
        self.rate, self.fixed_ms, self.probes = rate, fixed_ms, 0

    def set_rate(self, mbit: float) -> None:
        self.rate = mbit

    def probe(self) -> tuple[float, float]:
        self.probes += 1
        return ALONE_MS, ALONE_MS + self.fixed_ms + 8000 / self.rate


@pytest.mark.parametrize(("share", "fixed_ms"), [(0.6, 0.0), (0.855, 0.0), (0.6, 4.0)])
def test_links_have_the_rate_that_gives_the_share(share: float, fixed_ms: float) -> None:
    links = Links(200.0, fixed_ms)
    rate = links.match_rate(share, links.probe, first=200.0, tolerance=0.01)
    assert links.rate == rate
    alone, communicating = links.probe()
    assert 1 - alone / communicating == pytest.approx(share, abs=0.02)


def test_a_rate_that_matches_is_kept() -> None:
    links = Links(800.0)
    assert links.match_rate(0.5, links.probe, first=800.0, tolerance=0.01) == 800.0
    assert links.probes == 1


def test_rates_stay_within_what_links_can_have() -> None:
    links = Links(200.0, fixed_ms=100.0)  # more than the share, however fast links are
    assert links.match_rate(0.5, links.probe, first=200.0, tolerance=0.01) == 10_000
