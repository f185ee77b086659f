"""A checkpoint put together as one model."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from laconic.config import parse
from laconic.data import open_source
from laconic.errors import ConfigError, FormatError
from laconic.quantize.formats import Recipe, quantize_model
from laconic.serve import Engine
from laconic.train.load_trained import load_trained
from laconic.train.ranks import Ranks
from laconic.train.run import run
from laconic.train.settings import RunSettings
from laconic.train.trainer import Trainer

TEXT = """
[data]
kind = "synthetic"
rows = [40, 7, 300]
bags = [1, 4, 1]
dense = 3
samples = 400
eval_samples = 64

[model]
dim = 8
bottom = [16]
top = [16]

[train]
batch = 100
"""


@pytest.fixture
def folder(tmp_path):
    settings = parse(TEXT, RunSettings, (f"train.out={tmp_path / 'run'}",))
    run(settings, resume=False, console=None)
    return tmp_path / "run"


def test_a_run_is_loaded_whole_and_served_as_it_was_trained(folder):
    trained = load_trained(folder)
    assert [table.rows for table in trained.features.tables] == [40, 7, 300]
    settings = parse(TEXT, RunSettings, (f"train.out={folder}",))
    source = open_source(settings.data)
    trainer = Trainer(settings, source.schema, Ranks(0, 1))
    trainer.model.load_state_dict(trained.state)
    for name, table in trained.tables.items():
        trainer.rows.table_shard(name)[1].copy_(table[:])
    samples = next(iter(source.batches("eval", global_batch=64, rank=0, ranks=1)))
    expected = trainer.predict(samples).numpy()
    recipe = Recipe.uniform(trained.features.table_names, trained.shape.layer_names())
    logits = Engine(quantize_model(trained, recipe)).logits(samples.dense_BF.numpy(), samples.lookups)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


def test_a_run_that_used_what_is_gone_by_now_is_loaded(folder):
    path = folder / "settings.json"
    said = json.loads(path.read_text())
    said["compression"]["decay"]["kind"] = "closed_loop"
    said["compression"]["axes"] = "principal"
    path.write_text(json.dumps(said))
    assert [table.rows for table in load_trained(folder).features.tables] == [40, 7, 300]


def test_shards_of_several_ranks_are_put_together(folder):
    whole = load_trained(folder)
    path = next((folder / "checkpoints").glob("step-*"))
    parts = torch.load(path / "tables-0-of-1.pt", weights_only=True)
    manifest = (path / "manifest.json").read_text()
    from laconic.train.checkpoint_files import _checksum

    old = _checksum(path / "tables-0-of-1.pt")
    for rank in range(2):
        shard = {
            name: {"first": rank, "stride": 2, "weight": part["weight"][rank::2].clone()}
            for name, part in parts.items()
        }
        torch.save(shard, path / f"tables-{rank}-of-2.pt")
    new = {rank: _checksum(path / f"tables-{rank}-of-2.pt") for rank in range(2)}
    manifest = manifest.replace('"ranks": 1', '"ranks": 2').replace(
        f'"tables-0-of-1.pt": "{old}"', f'"tables-0-of-2.pt": "{new[0]}", "tables-1-of-2.pt": "{new[1]}"'
    )
    (path / "manifest.json").write_text(manifest)
    again = load_trained(folder)
    assert all(torch.equal(again.tables[name][:], table[:]) for name, table in whole.tables.items())
    (path / "tables-1-of-2.pt").write_bytes(b"x")
    with pytest.raises(FormatError, match="checksum does not match"):
        load_trained(folder)


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"settings\.json: cannot be read"):
        load_trained(tmp_path)
