"""A small model, trained once for all tests here."""

from __future__ import annotations

import pytest
import torch

from laconic.config import parse
from laconic.quantize.search.workbench import open_workbench
from laconic.train.run import run
from laconic.train.settings import RunSettings

SETTINGS = """
[data]
kind = "synthetic"
rows = [40, 700, 6]
bags = [1, 1, 4]
dense = 3
samples = 16384
eval_samples = 6000
[model]
dim = 8
bottom = [16]
top = [24]
[embeddings]
lr = 0.1
[compression]
rows = "exact"
gradients = "exact"
[train]
batch = 128
out = "{out}"
"""


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """The folder of a training run."""
    out = tmp_path_factory.mktemp("trained") / "run"
    run(parse(SETTINGS.format(out=out), RunSettings), resume=False, console=None)
    return out


@pytest.fixture(scope="session")
def bench(run_folder):
    """The run, ready to be quantized."""
    torch.manual_seed(0)
    return open_workbench(run_folder, most=10**9, seed=0, progress=lambda *_: None)
