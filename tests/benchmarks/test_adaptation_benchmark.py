"""The adaptation benchmark trains what it says, pairs runs of one seed, and shows all of it."""

from __future__ import annotations

from dataclasses import asdict, astuple, replace

import pytest
import torch
from rich.console import Console

from benchmarks.adaptation import benchmark
from benchmarks.adaptation import trials as policies
from benchmarks.adaptation.benchmark import (
    AdaptationResult,
    PolicyRow,
    StepPhases,
    _named,
    _trials,
    accuracy_rows,
    phases_of,
    render,
)
from benchmarks.adaptation.trials import MODEL, RANKS, PolicyOutcome, PolicyTrial, run_trial
from benchmarks.harness import Interval
from benchmarks.training.worker import Steps, TrainingPool
from laconic.data import SyntheticSettings
from laconic.demo.measure import RunFigures, step_ms
from laconic.exchange.ledger import DIRECTIONS, Account, Ledger
from laconic.train.settings import ModelSettings

STEPS = 36  # a guard widens bounds from step 32 on
DATA = SyntheticSettings(kind="synthetic", rows=(2000, 300, 5), samples=STEPS * 1024, eval_samples=2048)
EXCHANGES = {
    "exact": policies.exact(),
    "global 0.02": policies.global_bound(0.02),
    "sc24": "sc24",
    "auto": policies.auto(),
}


@pytest.fixture(scope="module")
def outcomes():
    threads = torch.get_num_threads()
    found = {
        name: run_trial(PolicyTrial("generated", DATA, name, "none", exchange, 0))
        for name, exchange in EXCHANGES.items()
    }
    torch.set_num_threads(threads)
    return found


def test_every_policy_trains(outcomes):
    for name, outcome in outcomes.items():
        assert 0.5 < outcome.auc < 1, name
        assert 0 < outcome.log_loss < 0.75, name
        assert outcome.bytes_sent > 0, name


def test_bounds_send_less_than_exactness(outcomes):
    exact, bounded = outcomes["exact"], outcomes["global 0.02"]
    assert bounded.ratio_forward > exact.ratio_forward
    assert bounded.ratio_forward > 1
    assert bounded.ratio_backward > exact.ratio_backward
    assert bounded.ratio_backward > 1
    assert bounded.bytes_sent < exact.bytes_sent


def test_the_paper_compresses_rows_and_sends_pooled_gradients_as_they_are(outcomes):
    sc24 = outcomes["sc24"]
    assert sc24.ratio_forward > 1
    assert 0.9 < sc24.ratio_backward <= 1  # the unit of ratios; its size messages come on top


def test_only_auto_decides(outcomes):
    assert outcomes["auto"].decisions > 0
    assert [outcomes[name].decisions for name in ("exact", "global 0.02", "sc24")] == [0, 0, 0]


def test_a_trial_repeats_to_the_last_bit(outcomes):
    assert run_trial(outcomes["exact"].trial) == outcomes["exact"]


def test_ratios_are_of_all_bytes_of_the_epoch_whatever_bounds_did_in_it(monkeypatch, outcomes):
    entries, record = [], Ledger.record

    def note(ledger, direction, entry):
        entries.append((direction, int(entry.after_T.sum()) + entry.sizes))
        record(ledger, direction, entry)

    def note_more(account, sent, wire_s):
        entries.append(("more", sent))
        add_sizes(account, sent, wire_s)

    add_sizes = Account.add_sizes
    monkeypatch.setattr(Ledger, "record", note)
    monkeypatch.setattr(Account, "add_sizes", note_more)
    wide = dict(policies.decayed(policies.global_bound(0.02), STEPS // 2, (4.0,)))["constant k=4"]
    threads = torch.get_num_threads()
    decayed = run_trial(PolicyTrial("generated", DATA, "global 0.02", "constant k=4", wide, 0))
    torch.set_num_threads(threads)
    scales = sum(size for where, size in entries if where == "more")
    sent = {direction: [size for where, size in entries if where == direction] for direction in DIRECTIONS}
    assert [len(sizes) for sizes in sent.values()] == [STEPS * RANKS] * 3  # each rank enters its own
    travelling = STEPS * 1024 * 3 * (RANKS - 1) / RANKS
    rows, ids = travelling * MODEL.dim * 4, travelling * 8
    assert decayed.ratio_forward == pytest.approx((rows + ids) / sum(sent["forward"] + sent["ids"]))
    assert decayed.ratio_backward == pytest.approx(rows / (sum(sent["backward"]) + scales))
    half = STEPS * RANKS // 2
    assert sum(sent["forward"][:half]) < sum(sent["forward"][half:])  # four times the bound, then the bound
    assert decayed.ratio_forward > outcomes["global 0.02"].ratio_forward


def test_exact_communication_differs_from_itself_by_nothing(outcomes):
    rows = {row.policy: row for row in accuracy_rows(list(outcomes.values()))}
    exact = rows["exact"]
    assert (exact.auc_delta, exact.log_loss_delta, exact.pairs) == (0, 0, 1)
    assert exact.auc_delta_sd is None
    auto = outcomes["auto"]
    assert rows["auto"].auc_delta == auto.auc - outcomes["exact"].auc
    assert rows["auto"].log_loss_delta == auto.log_loss - outcomes["exact"].log_loss


def outcome(policy, seed, auc, log_loss=0.5, *, name="books", decay="none", sent=100.0):
    trial = PolicyTrial(name, DATA, policy, decay, policies.exact(), seed)
    return PolicyOutcome(trial, auc, log_loss, 2.0, 3.0, sent, 0)


def test_runs_are_paired_with_the_exact_one_of_their_seed_and_data():
    rows = accuracy_rows(
        [
            outcome("exact", 0, 0.5),
            outcome("global 0.1", 0, 0.75, 0.25),
            outcome("global 0.1", 0, 0.5, decay="linear k=2"),
            outcome("exact", 1, 0.25, name="films"),
            outcome("global 0.1", 1, 0.125, name="films"),
            outcome("exact", 1, 0.75),
            outcome("global 0.1", 1, 0.5, 0.25, sent=300.0),
        ]
    )
    found = {(row.data, row.policy, row.decay): row for row in rows}
    assert len(found) == len(rows) == 5
    both = found["books", "global 0.1", "none"]
    assert (both.auc_delta, both.log_loss_delta, both.pairs, both.bytes_sent) == (0, -0.25, 2, 200)
    assert both.auc_delta_sd == pytest.approx(0.5**0.5 / 2)
    assert found["films", "global 0.1", "none"].auc_delta == -0.125
    assert found["books", "global 0.1", "linear k=2"].pairs == 1


def row(policy, auc_delta, sent, decay="none"):
    return PolicyRow(data="books", policy=policy, decay=decay, auc_delta=auc_delta, bytes_sent=sent)


def test_the_cheapest_that_keeps_the_auc_gives_its_family_its_name():
    kept = policies.KEEPS_AUC
    rows = [
        row("exact", 0.0, 1000),
        row("global 0.01", 0.001, 500),
        row("global 0.02", kept, 300),
        row("global 0.05", 2 * kept, 100),
        row("global 0.01", 0.01, 50, decay="linear k=2"),
        row("tuned 0.10%", 3 * kept, 200),
        row("tuned 0.03%", 2 * kept, 250),
    ]
    named = _named(rows)
    assert named[: len(rows)] == rows
    chosen = {found.policy: found for found in named[len(rows) :]}
    assert chosen["global"] == replace(rows[2], policy="global")
    assert chosen["tuned"] == replace(rows[6], policy="tuned")  # none keeps it: the most careful


def test_policies_are_what_they_are_called():
    assert policies.exact().rows.method == "exact"
    bounded = policies.global_bound(0.02)
    assert (bounded.rows.bound, bounded.gradients.bound) == (0.02, 0.02 * policies.GRADIENTS_PER_ROWS)
    auto = policies.auto()
    assert auto.budget is not None
    assert not auto.economy
    decays = dict(policies.decayed(bounded, 50, (2.0, 3.0)))
    assert len(decays) == 8
    assert decays["linear k=3"].decay.steps == 50
    assert all(compression.rows.bound == 0.02 for compression in decays.values())


@pytest.mark.parametrize("full", [True, False])
def test_decays_are_trained_over_a_fifth_of_the_epoch_in_full_alone(monkeypatch, full):
    monkeypatch.setattr(policies, "tuned", lambda measured, share: policies.global_bound(share))
    trials = _trials("books", DATA, None, 1000, 2, full)
    assert [trial.policy for trial in trials if trial.decay == "none"][:3] == ["exact", "sc24", "auto"]
    decayed = [trial for trial in trials if trial.decay != "none"]
    assert len(decayed) == (2 * 12 if full else 0)
    assert len({(trial.policy, trial.decay, trial.seed) for trial in trials}) == len(trials)
    for trial in decayed:
        assert trial.policy == "global 0.01"
        assert trial.compression.decay.steps == 200


def test_auto_is_timed_on_real_ranks_next_to_the_fixed_ways(monkeypatch):
    fixed = ("plain_pairwise", "laconic_pairwise")
    monkeypatch.setattr(benchmark, "_FIXED", fixed)
    data = SyntheticSettings(kind="synthetic", rows=(2000, 300, 5), samples=2048, eval_samples=256)
    model = ModelSettings(dim=8, bottom=(8,), top=(8,))
    methods = ("alone", *fixed, "auto")
    job = Steps(data=data, model=model, methods=methods, batch=64, rounds=2, steps=1, settling=10)
    with TrainingPool(2) as pool:
        answers = pool.time_steps(job)
    assert list(answers) == ["alone", *fixed, "auto"]
    assert all(step_ms(answer) > 0 for answer in answers.values())
    assert answers["auto"].bytes_forward <= answers["plain_pairwise"].bytes_forward
    *others, auto = rows = benchmark._timing_rows(answers, None)
    assert [found.policy for found in rows] == ["plain", "laconic", "auto"]
    assert 0 <= auto.bypassed_tables <= 2 * 3
    assert auto.ratio_to_best[0] > 0
    assert {found.ratio_to_best for found in others} == {None}
    for name, found in zip((*fixed, "auto"), rows, strict=True):
        parts = found.parts_ms
        assert min(parts.forward, parts.backward, parts.compute) > 0
        assert sum(astuple(parts)) >= found.step_ms - 1e-9
        assert parts.compute == step_ms(answers["alone"])
        assert parts.backward == answers[name].ms_backward


def test_a_step_is_divided_as_the_paper_does():
    answer = RunFigures(method="m", round_ms=((10.0, 10.0),), ms_ids=1.0, ms_forward=2.0, ms_backward=1.5)
    alone = RunFigures(method="alone", round_ms=((4.0,),))
    assert phases_of(answer, alone) == StepPhases(forward=3.0, backward=1.5, all_reduce=1.5, compute=4.0)
    hidden = answer.model_copy(update={"ms_forward": 7.0})
    assert phases_of(hidden, alone) == StepPhases(forward=8.0, backward=1.5, all_reduce=0.0, compute=4.0)


def test_tables_show_every_row():
    rows = [
        replace(row("exact", 0.0, 1e6), ratio_forward=1.0, ratio_backward=1.0, log_loss_delta=0.0, pairs=2),
        replace(
            row("auto", -0.00012, 1e5),
            ratio_forward=7.25,
            ratio_backward=5.5,
            log_loss_delta=0.00034,
            auc_delta_sd=0.0002,
            pairs=2,
        ),
        PolicyRow(data="synthetic", policy="plain", rate_mbit=200.0, step_ms=9.0),
        PolicyRow(
            data="synthetic",
            policy="auto",
            rate_mbit=200.0,
            step_ms=4.5,
            ratio_to_best=Interval(0.9, 0.8, 1.0),
            parts_ms=StepPhases(forward=1.25, backward=0.5, all_reduce=0.0, compute=2.75),
            bypassed_tables=3,
        ),
        PolicyRow(
            data="synthetic",
            policy="auto",
            step_ms=4.5,
            ratio_to_best=Interval(0.9, 0.8, 1.0),
            bypassed_tables=3,
        ),
    ]
    console = Console(width=160)
    with console.capture() as capture:
        console.print(render(AdaptationResult(rows, [])))
    text = capture.get()
    assert "books: one epoch, 4 rehearsed ranks, 2 paired runs" in text
    for words in (
        "7.2x",
        "100.0 kB",
        "-0.00012",
        "0.00020",
        "+0.00034",
        "200 Mbit/s",
        "loopback",
        "1.2 ms",
        "2.8 ms",
    ):
        assert words in text
    assert text.count("0.900 (0.800 - 1.000)") == 2
    assert set(asdict(rows[0])) >= {"data", "policy", "decay", "auc_delta", "step_ms"}
