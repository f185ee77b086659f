"""When something breaks, every rank says so in one line and ends; nothing hangs, and the run goes on from there."""

from __future__ import annotations

import json
import os
import re
import signal
from functools import partial
from importlib import import_module
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from laconic.exchange import Table
from laconic.lab import Lab
from laconic.lookups import Lookups
from laconic.train.checkpoint import newest_checkpoint
from tests.distributed.made import made
from tests.distributed.ranks import run_ranks, server
from tests.distributed.training import PATIENCE_S, Steps, start, train, write_settings
from tests.warm import python

LOST = r"^laconic: .+: rank {rank} lost a peer \(.+\); a rank or a link is down, .+ with --resume$"
ENDLESS = 10**7


def assert_lost(rank, errors):
    assert len(errors) == 1, errors
    assert re.match(LOST.format(rank=rank), errors[0])


def newest_step(folder):
    newest = newest_checkpoint(folder / "checkpoints")
    return json.loads((newest / "manifest.json").read_text())["position"]["step"]


def test_a_killed_rank_ends_the_others_with_one_line_and_the_run_goes_on_from_its_checkpoint(tmp_path):
    settings = write_settings(tmp_path, samples=ENDLESS)
    steps = Steps(tmp_path / "run")
    ranks = start(3, tmp_path / "first", [str(settings)])
    steps.wait_for(8)
    ranks[1].process.kill()
    for rank in (0, 2):
        assert ranks[rank].wait() == 1
        assert_lost(rank, ranks[rank].errors)
    ranks[1].wait()
    steps.remove()
    saved = newest_step(tmp_path / "run")
    assert saved >= 5
    train(3, tmp_path / "again", str(settings), "--resume", "--set", f"train.steps={saved + 3}")
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in logged if entry["kind"] == "train"] == [saved + k for k in (1, 2, 3)]
    assert newest_step(tmp_path / "run") == saved + 3


def test_ctrl_c_ends_all_ranks_quietly_and_the_run_goes_on_from_its_checkpoint(tmp_path):
    settings = write_settings(tmp_path, samples=ENDLESS)
    steps = Steps(tmp_path / "run")
    join = partial(_join_group, tmp_path / "group", server().Barrier(3))
    ranks = start(3, tmp_path / "first", [str(settings)], sabotage=join)
    steps.wait_for(8)
    os.killpg(int((tmp_path / "group").read_text()), signal.SIGINT)
    for rank in ranks:
        assert rank.wait() == 130
        assert rank.errors == []
    steps.remove()
    saved = newest_step(tmp_path / "run")
    train(3, tmp_path / "again", str(settings), "--resume", "--set", f"train.steps={saved + 1}")


def _join_group(file: Path, barrier: Barrier, rank: int) -> None:
    """Put all ranks in one process group, as a terminal has it: a signal reaches them at once."""
    if rank == 0:
        os.setpgid(0, 0)
        file.write_text(str(os.getpid()))
    barrier.wait()
    if rank != 0:
        os.setpgid(0, int(file.read_text()))


def _leave_at(place: str, rank: int) -> None:
    """Let rank 1 vanish when it comes to a function; the others go on."""
    module, name = place.split(":")
    owner = import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    if rank == 1:
        setattr(owner, last, lambda *_args, **_options: os._exit(9))


@pytest.mark.parametrize(
    "place",
    [
        "laconic.train.run:_check_alike",
        "laconic.train.trainer:DistributedDataParallel",
        "laconic.exchange.pipeline:Pipeline.update",
        "laconic.exchange.ranks.gathering:Gathering.hand",
        "laconic.train.checkpoint:_write_part",
    ],
)
def test_wherever_a_rank_vanishes_the_others_say_the_same(tmp_path, place):
    settings = write_settings(tmp_path, samples=2000)
    ranks = start(3, tmp_path, [str(settings)], sabotage=partial(_leave_at, place))
    for number, rank in enumerate(ranks):
        assert rank.wait() == (9 if number == 1 else 1), rank.errors
        if number != 1:
            assert_lost(number, rank.errors)


def test_ranks_that_torchrun_restarts_go_on_and_do_not_look_for_those_that_are_gone(tmp_path):
    """The store stays, with the addresses of the ranks before; nobody says --resume."""
    settings = str(write_settings(tmp_path, samples=2000))
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = {"MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for attempt in range(2):
        environment["TORCHELASTIC_RESTART_COUNT"] = str(attempt)
        limit = ["--set", f"train.steps={2 * attempt + 2}"]
        for rank in start(2, tmp_path / f"{attempt}", [settings, *limit], environment=environment):
            assert rank.wait() == 0, rank.errors
            assert rank.errors == []
        assert newest_step(tmp_path / "run") == 2 * attempt + 2


def test_ranks_with_other_settings_raise_before_anything_is_trained(tmp_path):
    settings = write_settings(tmp_path, samples=2000)
    for rank in start(2, tmp_path, [str(settings)], only={1: ["--set", "train.batch=17"]}):
        assert rank.wait() == 1
        assert rank.errors == [
            "laconic: train.batch: rank 0 has 16, rank 1 has 17; "
            "all ranks need the same settings, and one folder that they share"
        ]


def _other_tables(rank, ranks, rows):
    tables = [Table(name=f"t{t}", rows=count, sharding="row") for t, count in enumerate(rows[rank])]
    made(tables, 4)


@pytest.mark.parametrize("rows", [[(9, 9), (9, 9), (9, 8)], [(9,), (9, 9, 9), (9,)]], ids=["rows", "number"])
def test_ranks_with_other_tables_all_raise(rows):
    for kind, text, _ in run_ranks(3, _other_tables, rows, check=False):
        assert kind == "CommError"
        assert re.match(
            r"^exchange of ids: rank \d is at turn 0 with plan [0-9a-f]{16}, rank \d at turn", text
        )
        assert text.endswith("the ranks are out of step")


def _wrong_id(rank: int) -> None:
    """Let rank 1 look up a row that does not exist."""
    from laconic.data.synthetic import Synthetic

    proper = Synthetic._lookups

    def damaged(self, columns):
        lookups = proper(self, columns)
        ids_L = lookups.ids_L.clone()
        ids_L[2] = 200
        return Lookups(ids_L, lookups.offsets, lookups.tables)

    if rank == 1:
        Synthetic._lookups = damaged


def test_an_id_out_of_range_is_an_error_of_all_ranks_that_says_whose_it_is(tmp_path):
    settings = write_settings(tmp_path, samples=2000)
    error = "lookups: table 'c0' has 200 rows, got id 200 in sample 2; map unknown ids to a row of their own"
    for number, rank in enumerate(start(3, tmp_path, [str(settings)], sabotage=_wrong_id)):
        assert rank.wait() == 2
        assert rank.errors == [f"laconic: {error}" if number == 1 else f"laconic: rank 1: {error}"]


def test_a_cut_link_ends_every_rank_with_an_error(tmp_path, machine):
    settings = write_settings(tmp_path, samples=ENDLESS)
    steps = Steps(tmp_path / "run")
    with Lab(hosts=3) as lab:
        command = [
            *python(),
            "-c",
            "from laconic.cli import main; main()",
            "train",
            settings,
            "--set",
            "train.timeout_s=5",
            "--set",
            "train.checkpoint_every=100",  # at a checkpoint ranks wait for each other for minutes
            "--set",
            "train.eval_every=1000",
        ]
        job = lab.start(command, env={"OMP_NUM_THREADS": "1"}, grace_s=PATIENCE_S)
        steps.wait_for(103)
        lab.link_down(2)
        result = job.wait(PATIENCE_S)
    assert result.exit_codes == [1, 1, 1]
    for host in result.hosts:
        assert not host.ended_by_lab
        assert_lost(host.host, [line for line in host.output.splitlines() if line.startswith("laconic")])
        assert "Traceback" not in host.output
    assert newest_step(tmp_path / "run") >= 100
