"""Quantizing takes memory for an artifact and for some rows, not for the model in float32."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from laconic.config import parse
from laconic.train.run import run
from laconic.train.settings import RunSettings

STATUS = Path("/proc/self/status")

SETTINGS = """
[data]
kind = "synthetic"
rows = [290000, 200000, 110000]
dense = 2
samples = 256
eval_samples = 3000
[model]
dim = 64
bottom = [8]
top = [8]
[compression]
rows = "exact"
gradients = "exact"
[train]
batch = 128
out = "{out}"
"""
MODEL_MB = 600_000 * 64 * 4 / 1e6

CHILD = """
import sys
from pathlib import Path

import torch

from laconic.quantize.formats import Artifact, Recipe, TablePrecision, write_artifact
from laconic.quantize.search.run import refresh
from laconic.quantize.search.workbench import open_workbench


def kilobytes(name):
    text = Path("/proc/self/status").read_text()
    return int(text.partition(name + ":")[2].split()[0])


torch.set_num_threads(1)
before = kilobytes("VmRSS")
bench = open_workbench(Path(sys.argv[1]), most=3000, seed=0, progress=lambda *_: None)
trained = bench.trained
precision = TablePrecision(format="int4")
recipe = Recipe.uniform(trained.features.table_names, trained.shape.layer_names(), table=precision)
old = Artifact(trained.shape, trained.features, recipe, {}, {})
made = refresh(bench, old, 1.0, lambda *_: None)
write_artifact(sys.argv[2], made.artifact, shadow=trained)
print(kilobytes("VmHWM") - before)
"""


@pytest.mark.skipif(not STATUS.exists(), reason="no /proc/self/status to read the peak from")
def test_the_peak_is_far_below_the_model(tmp_path):
    """A model of 154 MB, an artifact of 22 MB: a tensor of the size of the model is too much."""
    run(parse(SETTINGS.format(out=tmp_path / "run"), RunSettings), resume=False, console=None)
    words = [sys.executable, "-c", CHILD, str(tmp_path / "run"), str(tmp_path / "low")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "low" / "shadow.safetensors").stat().st_size > 1e6 * MODEL_MB
    assert int(done.stdout) * 1024 / 1e6 < 0.7 * MODEL_MB
