"""What Laconic wrote when settings had ``[exchange]`` is read: a policy file, a run's folder.

``written_before`` was written by the commands of that time: ``laconic tune``, ``laconic train``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from laconic.codecs import BoundedRows
from laconic.config import parse
from laconic.train.load_trained import load_trained, run_settings
from laconic.train.run import run
from laconic.train.settings import RunSettings

BEFORE = Path(__file__).parent / "written_before"
SETTINGS = """
[data]
kind = "synthetic"
rows = [40, 9, 200]
samples = 4000
eval_samples = 400
seed = 3

[model]
dim = 4
bottom = [8]
top = [8]

[embeddings]
lr = 0.04
optimizer = "sgd"

[dense]
lr = 0.03

[train]
batch = 64
lr_warmup = 3
"""


def test_a_policy_file_gives_each_table_its_bounds():
    overrides = (f"compression.policy={BEFORE / 'policy.toml'}", "compression.rows.bound=0.02")
    settings = parse(SETTINGS, RunSettings, overrides).compression.effective()
    plan = settings.compression().policy(["c0", "c1", "c2"]).plan_for(0)
    gradients = BoundedRows(1.5, relative_to="rms", rounding="unbiased")
    assert [codecs.forward for codecs in plan.tables] == [
        BoundedRows(bound, relative_to="range") for bound in (0.16, 0.02, 0.08)
    ]
    assert {codecs.backward for codecs in plan.tables} == {gradients}


def test_a_runs_folder_is_one_model():
    settings = run_settings(BEFORE / "trained")
    assert (settings.embeddings.lr, settings.dense.lr, settings.train.lr_warmup) == (0.04, 0.03, 3)
    trained = load_trained(BEFORE / "trained")
    assert [len(rows_RD) for rows_RD in trained.tables.values()] == [40, 9, 200]


def test_a_checkpoint_is_resumed(tmp_path):
    shutil.copytree(BEFORE / "trained", tmp_path / "trained")
    settings = parse(SETTINGS, RunSettings, (f"train.out={tmp_path / 'trained'}", "train.steps=10"))
    assert run(settings, resume=True, console=None).steps == 10
    written = json.loads((tmp_path / "trained" / "settings.json").read_text())
    assert written["compression"]["rows"]["bound"] == settings.compression.rows.bound
    assert run_settings(tmp_path / "trained").embeddings == settings.embeddings
