"""The benchmark of sums measures what it says, with real ranks, and calls exact what is."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from rich.console import Console

from benchmarks.harness import Interval
from benchmarks.reduction.benchmark import (
    SumPlan,
    render,
    rows_of,
    run_reduction_benchmark,
    usual_plan,
)
from benchmarks.reduction.models import Dlrm, Encoder, Lstm, Mlp, Ncf
from benchmarks.reduction.sums import METHODS, Generated, Truth, record
from benchmarks.reduction.worker import SumAnswer, Sums
from benchmarks.workers import WorkerPool, bytes_sent, fingerprint
from laconic.errors import CommError, ConfigError

NCF = Ncf(users=400, items=2000, dim=8, hidden=(8,), batch=16)
TASKS = (
    NCF,
    Dlrm(rows=(3000, 40, 5), cap=2000, dim=8, batch=8),
    Lstm(words=500, dim=8, hidden=8, length=5, batch=2),
    Encoder(words=200, dim=8, layers=1, length=7, batch=2),
    Mlp(inputs=12, hidden=(9,), batch=4),
)
COLUMNS = {
    "method",
    "workload",
    "sparsity",
    "supports",
    "hosts",
    "rate_mbit",
    "ms",
    "bytes_sent_per_host",
    "exact",
}
WORDS = 20_011  # no square, no multiple of anything


@pytest.fixture(scope="module")
def rows():
    plan = SumPlan(
        words=WORDS,
        sparsities=(0.9, 0.99),
        repeats=1,
        recorded=(NCF,),
        many_hosts=3,
        sparse_model=NCF,
        dense_model=TASKS[-1],
        rounds=1,
        steps=1,
    )
    said: list[str] = []
    found = run_reduction_benchmark(plan, hosts=2, rate_mbit=None, say=said.append)
    assert said[-1] == f"training {plan.dense_model.name} under DDP on loopback"
    return found


def test_every_method_is_measured_on_every_workload_and_number_of_hosts(rows):
    sums = [row for row in rows if "DDP" not in row.workload]
    settings = {(row.workload, row.sparsity, row.supports, row.hosts) for row in sums}
    assert len(settings) == 2 * (2 * 2 + 1)
    assert len(sums) == len(settings) * len(METHODS)
    assert {row.supports for row in sums} == {"identical", "independent"}
    steps = [(row.workload, row.method) for row in rows if "DDP" in row.workload]
    ncf, mlp = (f"{task.name}, a step under DDP" for task in (NCF, TASKS[-1]))
    assert steps == [(ncf, "dense"), (ncf, "laconic"), (mlp, "dense"), (mlp, "laconic")]


def test_rows_have_the_columns_that_machines_read(rows):
    for row in rows:
        assert set(asdict(row)) == COLUMNS | {"way", "over_dense"}
        assert row.ms > 0
        assert row.rate_mbit is None
        assert (row.over_dense is None) == (row.method == "dense")


def test_exact_is_what_sums_to_the_truth(rows):
    for row in rows:
        if row.method in ("dense", "laconic"):
            assert row.exact, row
        elif row.method in ("fp16", "powersgd"):
            assert not row.exact, row
        elif row.method == "topk" and row.workload.startswith(
            "generated"
        ):  # one in a hundred is all there is, or not
            assert row.exact == (row.sparsity == 0.99), row


def least_bytes(method, hosts, sparsity):
    """What a host cannot help sending."""
    ring, there = 2 * (hosts - 1) / hosts, (1 - sparsity) * WORDS
    return {
        "dense": ring * 4 * WORDS,
        "fp16": ring * 2 * WORDS,
        "powersgd": ring * 4 * 2 * 141,  # one row and one column of the square
        "topk": (hosts - 1) * 8 * round(0.01 * WORDS),
        "sketch": ring * 4 * there,
        "laconic": (hosts - 1) / hosts * 4 * there,
    }[method]


def test_bytes_are_at_least_those_that_must_travel(rows):
    for row in rows:  # loopback counts those of other processes, too
        if row.workload.startswith("generated"):
            assert row.bytes_sent_per_host >= least_bytes(row.method, row.hosts, row.sparsity), row


def test_a_method_that_does_not_exist_is_refused():
    job = Sums(workload=Generated(words=10, sparsity=0.5, supports="identical"), methods=("lzma",), repeats=1)
    with (
        pytest.raises(CommError, match=r"no such method 'lzma' \(known: dense, fp16"),
        WorkerPool("benchmarks.reduction.worker", 2) as pool,
    ):
        pool.ask(job, SumAnswer)


def test_generated_gradients_are_as_sparse_as_asked():
    for supports in ("identical", "independent"):
        parts = [Generated(words=1000, sparsity=0.95, supports=supports).gradient(rank) for rank in (0, 1)]
        assert [np.count_nonzero(part) for part in parts] == [50, 50]
        places = [set(np.flatnonzero(part).tolist()) for part in parts]
        assert (places[0] == places[1]) == (supports == "identical")
        assert not np.array_equal(parts[0], parts[1])


@pytest.mark.parametrize("words", [1, 2, 15, 16, 1000])
def test_shapes_cover_all_words(words):
    workload = Generated(words=words, sparsity=0.5, supports="identical")
    assert sum(int(np.prod(shape)) for shape in workload.shapes) == words


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.kind)
def test_recorded_gradients_are_those_of_each_rank_after_the_same_steps(task, tmp_path):
    recorded = record(task, 3, tmp_path, steps=1)
    torch.manual_seed(0)
    module = task.module()
    assert recorded.shapes == tuple(tuple(p.shape) for p in module.parameters())

    def gradient(rank, step):
        batch = task.batch_of(rank, step)
        return torch.autograd.grad(task.loss(module(*batch.inputs), batch.target), list(module.parameters()))

    means = [sum(parts) / 3 for parts in zip(*(gradient(rank, 0) for rank in range(3)), strict=True)]
    with torch.no_grad():
        for parameter, mean in zip(module.parameters(), means, strict=True):
            parameter.sub_(0.1 * mean)
    for rank in range(3):
        wanted = torch.cat([part.reshape(-1) for part in gradient(rank, 1)])
        torch.testing.assert_close(torch.from_numpy(recorded.gradient(rank)), wanted)
    zeros = float((recorded.gradient(0) == 0).mean())
    assert recorded.sparsity == pytest.approx(zeros)


def test_batches_differ_by_rank_and_step_and_repeat():
    for task in TASKS:
        marks = [task.batch_of(rank, step).inputs[-1] for rank in (0, 1) for step in (0, 1)]
        assert len({mark.numpy().tobytes() for mark in marks}) == 4
        assert torch.equal(marks[0], task.batch_of(0, 0).inputs[-1])


def test_ncf_reads_book_crossing(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"c_user": [7, 7, 1_000_000], "c_isbn": [5, 6, 5], "label": [1, 0, 1]}
    pq.write_table(pa.table(columns), tmp_path / "book_crossing.parquet")
    task = NCF.model_copy(update={"data": tmp_path})
    assert task.name == "ncf (Book-Crossing)"
    batch = task.batch_of(0, 0)
    seen = {
        (user, item, label)
        for user, item, label in zip(
            batch.inputs[0].tolist(), batch.inputs[1].tolist(), batch.target.tolist(), strict=True
        )
    }
    assert seen <= {(0, 0, 1.0), (0, 1, 0.0), (1, 0, 1.0)}
    assert [tuple(p.shape) for p in task.module().parameters()][:2] == [(2, 8), (2, 8)]


def test_a_folder_without_book_crossing_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"--data: no book_crossing\.parquet in"):
        usual_plan(tmp_path, full=False)


def test_the_usual_model_has_as_many_parameters_as_it_says():
    plan = usual_plan(None, full=False)
    assert isinstance(plan.sparse_model, Ncf)
    assert (plan.sparse_model.users + plan.sparse_model.items) * plan.sparse_model.dim >= 20_000_000
    assert plan.sparse_model.batch == 1024
    assert {task.kind for task in plan.recorded} == {"dlrm", "ncf", "lstm", "encoder"}


def test_truth_allows_rounding_and_nothing_else():
    parts = [np.array(values, np.float32) for values in ([1, 0, 1e30], [3e-8, 0, -1e30], [3e-8, 0, 1])]
    truth = Truth.of(parts)
    total = torch.from_numpy(parts[0] + parts[1] + parts[2])
    assert truth.allows(total)
    for place, wrong in ((0, 1.00001), (1, 1e-30), (2, 1e25), (0, float("nan"))):
        changed = total.clone()
        changed[place] = wrong
        assert not truth.allows(changed), wrong


def test_a_fingerprint_tells_zeros_apart():
    assert fingerprint(torch.tensor([0.0])) != fingerprint(torch.tensor([-0.0]))
    assert fingerprint(torch.ones(3, 2).t()) == fingerprint(torch.ones(6))


def test_the_counter_is_that_of_the_interface(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert bytes_sent() <= bytes_sent()
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no_such_card")
    with pytest.raises(ConfigError, match="no such network interface 'no_such_card'"):
        bytes_sent()


def answer(method, times, **figures):
    return SumAnswer(
        method=method, round_ms=tuple((t,) for t in times), bytes_sent=1e6, exact=True, **figures
    )


def test_times_are_paired_with_those_of_dense():
    setting = {"workload": "w", "supports": "identical", "sparsity": 0.5, "hosts": 2, "rate_mbit": 10.0}
    dense, ours = rows_of([answer("dense", (4, 8, 40)), answer("laconic", (1, 2, 10))], **setting)
    assert (dense.ms, ours.ms) == (8, 2)
    assert ours.over_dense == (0.25, 0.25, 0.25)
    with pytest.raises(CommError, match="says that it sent 2000000 bytes, but interfaces counted 1000000"):
        rows_of([answer("laconic", (1,), bytes_claimed=2e6)], **setting)


def test_tables_show_every_row(rows):
    console = Console(width=140)
    ours = next(row for row in rows if row.method == "laconic" and row.workload.startswith("generated"))
    shown = [
        *rows,
        replace(ours, workload="links", rate_mbit=200.0, over_dense=Interval(0.25, 0.2, 0.3), way="gather"),
    ]
    with console.capture() as capture:
        console.print(render(shown))
    text = capture.get()
    assert text.count("│ powersgd ") == sum(row.method == "powersgd" for row in rows)
    for words in (
        "200 Mbit/s",
        "loopback",
        "laconic (gather)",
        "0.250 (0.200 - 0.300)",
        "4.00x (3.33x)",
        "3 hosts",
    ):
        assert words in text


def test_hosts_of_the_lab_count_their_own_bytes(machine):
    workload = Generated(words=WORDS, sparsity=0.9, supports="identical")
    job = Sums(workload=workload, methods=tuple(METHODS), repeats=1)
    with WorkerPool("benchmarks.reduction.worker", 2, rate_mbit=200) as pool:
        answers = pool.ask(job, SumAnswer)
    for answer in answers:  # index, headers, acknowledgements and barriers come on top
        least = least_bytes(answer.method, 2, 0.9)
        assert least <= answer.bytes_sent, answer
        if answer.method == "sketch":  # a small one has more cells than entries
            continue
        assert answer.bytes_sent < 1.3 * least + 10_000, answer
        if answer.method == "laconic":
            assert answer.exact
            assert answer.bytes_claimed <= answer.bytes_sent < 1.1 * answer.bytes_claimed + 10_000
