"""What is done to ranks of a run before it starts, so that its adaptation can be watched."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

from laconic.adapt import evidence
from laconic.adapt.economy import CHOICES
from laconic.train.trainer import Trainer
from tests.distributed.training import start
from tests.train.small_runs import state_of
from tests.train.test_checkpoint import assert_equal

CHOSEN = ("cast", "exact", "bounded", "bounded")
"""What ``plant_costs`` makes the economy choose for the four tables."""


@dataclass
class Watched:
    """Write down what every rank decides; check that reviews leave training as it was."""

    folder: Path
    slow_rank: int | None = None
    planted: bool = False
    accounted_from: int | None = None
    """Step of the economy's first review."""

    def __call__(self, rank: int) -> None:
        if rank == self.slow_rank:
            slow_down()
        if self.planted:
            plant_costs()
        if self.accounted_from is not None:
            evidence._FIRST = self.accounted_from
        self.folder.mkdir(parents=True, exist_ok=True)
        check_reviews(evidence.Accountant, self.folder / f"accounts-{rank}")
        note_decisions(self.folder / f"decisions-{rank}")


def slow_down() -> None:
    step = Trainer.step

    def slowly(self, *args):
        time.sleep(0.01)
        return step(self, *args)

    Trainer.step = slowly


def plant_costs() -> None:
    """Make all but one choice of every table dear; the rest is as measured."""
    measure = evidence.codec_costs

    def planted(*args):
        return tuple(
            tuple(
                cost if cost is None or name == chosen else replace(cost, encode_s=cost.encode_s + 1)
                for name, cost in zip(CHOICES, costs, strict=True)
            )
            for chosen, costs in zip(CHOSEN, measure(*args), strict=True)
        )

    evidence.codec_costs = planted


def check_reviews(kind, path: Path) -> None:
    """Compare all that training changes before and after each review; write down the steps of reviews."""
    make = kind.review

    def checked(self, step, *args):
        trainer = self._subject
        ledger = trainer.embeddings.engines[0].ledger
        before, sent = state_of(trainer), ledger.rows()
        found = make(self, step, *args)
        assert_equal(state_of(trainer), before)
        assert trainer.embeddings.engines[0].ledger is ledger
        assert ledger.rows() == sent
        with path.open("a") as file:
            file.write(f"{step} {sum(account.sent for account in self.ledger.accounts.values())}\n")
        return found

    kind.review = checked


def note_decisions(path: Path) -> None:
    after = evidence.Adaptation.after

    def noted(self, step, *args):
        decisions = after(self, step, *args)
        with path.open("a") as file:
            for decision in decisions:
                file.write(json.dumps({"step": step, **decision}) + "\n")
        return decisions

    evidence.Adaptation.after = noted


def adapt(ranks, folder, watched, *arguments):
    """Train to the end under watch."""
    for rank in start(ranks, folder, arguments, sabotage=watched):
        assert rank.wait() == 0, rank.err.read_text()
        assert rank.errors == []


def decisions_of(out):
    """Lines of a run's metrics."""
    entries = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [entry for entry in entries if entry["kind"] == "decision"]
