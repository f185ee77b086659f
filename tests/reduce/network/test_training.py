"""``laconic train`` whose dense gradients a switch adds: the model is that of ranks that add the same integers."""

from __future__ import annotations

from laconic.lab import Faults, Lab
from laconic.reduce.network.xdp import reason_against
from tests.distributed.training import train, write_settings
from tests.train.test_checkpoint import assert_same_checkpoint, checkpoint
from tests.warm import python

PATIENCE_S = 240


def trained_by_ranks(folder):
    settings = write_settings(folder, samples=16 * 2 * 6, name="ranks")
    train(2, folder / "processes", str(settings), "--set", "compression.dense=rounded")
    return checkpoint(folder / "ranks", 6)


def trained_by_switch(folder, **switch):
    settings = write_settings(folder, samples=16 * 2 * 6, name="switch")
    command = [*python(), "-c", "from laconic.cli import main; main()", "train", str(settings)]
    with Lab(hosts=2, mbps=100, **switch) as lab:
        result = lab.run([*command, "--set", "compression.dense=network"], timeout_s=PATIENCE_S)
        counters = lab.aggregator_counters()
    result.check()
    return checkpoint(folder / "switch", 6), counters


def test_a_switch_trains_the_model_that_ranks_would(tmp_path, machine):
    """In the kernel and over links that lose packets, where this machine can; in user space elsewhere."""
    switch = {"aggregator": "user"}
    if reason_against() is None:
        switch = {"aggregator": "xdp", "faults": Faults(loss=0.01, seed=3)}
    by_ranks = trained_by_ranks(tmp_path)
    by_switch, counters = trained_by_switch(tmp_path, **switch)
    assert_same_checkpoint(by_ranks, by_switch)
    assert counters["results"] > 0
