"""The ledger's total is everything that left a rank, not only what its directions sent."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from laconic.exchange import Ledger
from laconic.exchange.ledger import Entry
from laconic.train.display import Display
from laconic.train.trainer import Trainer


def filled(steps=2):
    """Rows and gradients 9x smaller, ids 2x, and 50 bytes of sizes a direction and step."""
    ledger = Ledger(("user", "item"))
    for step in range(steps):
        for direction, before, after in (
            ("ids", 200, 100),
            ("forward", 4500, 500),
            ("backward", 4500, 500),
        ):
            each = (np.array([before, 0]), np.array([after, 0]))
            ledger.record(direction, Entry(step, *each, 50, 0.0, 0.0, 0.0))
    return ledger


def test_the_total_has_all_directions_sizes_dense_gradients_and_reviews():
    total = filled().total(dense_before=8000.0, dense_sent=4000.0, reviews=350.0)
    assert total == {
        "bytes_before": 200 + 2 * 4500 + 8000,
        "bytes_sent": 100 + 2 * 500 + 3 * 50 + 4000 + 350,
        "ratio": pytest.approx(17200 / 5600),
    }


def test_a_rank_that_sends_nothing_saves_nothing():
    assert Ledger(("user",)).total(dense_before=0, dense_sent=0) == {
        "bytes_before": 0,
        "bytes_sent": 0,
        "ratio": 1.0,
    }


def test_the_printed_table_ends_with_the_total():
    text = StringIO()
    display = Display(Console(file=text, width=120), steps=1)
    display.close()
    display.ledger(filled(), 8000, 4000, 350)
    rows = [line for line in text.getvalue().splitlines() if "│" in line]
    by_name = {line.split("│")[1].strip(): line for line in rows}
    assert "8.0 kB" in by_name["dense"]
    assert "350 B" in by_name["reviews"]
    total = [cell.strip() for cell in by_name["total"].split("│")]
    assert total[2:5] == ["17.2 kB", "5.6 kB", "3.1x"]


def test_dense_bytes_of_a_resumed_run_are_of_the_steps_that_it_took():
    """A checkpoint of step 100, ten steps since: the count of steps goes on, that of bytes begins anew."""
    since = SimpleNamespace(step=110, bytes_dense=9990, bytes_sent=3000)
    trainer = SimpleNamespace(compressor=since, dense_bytes_before=1000)
    assert Trainer.dense_bytes.fget(trainer) == 300
