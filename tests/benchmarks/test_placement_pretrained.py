"""All contenders begin with what one has learned, wherever their rows are."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.placement.worker import NO_RATE, copy_state, pretrained
from laconic.data import SyntheticSettings, open_source
from laconic.train.placement import Placement
from laconic.train.ranks import Ranks
from laconic.train.settings import DenseSettings, EmbeddingSettings, ModelSettings, RunSettings
from laconic.train.trainer import Trainer

BATCH, MODEL = 256, ModelSettings(dim=8, bottom=(16,), top=(16,))
DATA = SyntheticSettings(kind="synthetic", rows=(40, 7), samples=4 * BATCH)
FROZEN = RunSettings(
    data=DATA,
    model=MODEL,
    embeddings=EmbeddingSettings(lr=NO_RATE),
    dense=DenseSettings(lr=NO_RATE),
)


@pytest.fixture(scope="module")
def learned():
    return pretrained(DATA, BATCH, MODEL)


@pytest.mark.parametrize("kind", ["rehearsed", "hot"])
def test_state_is_taken_over_and_kept(learned, kind):
    source = open_source(DATA)
    names = [feature.name for feature in source.schema.categorical]
    samples = next(iter(source.batches("train", global_batch=BATCH, rank=0, ranks=1)))
    hot = {names[0]: np.array([1, 5])}
    placement = replace(Placement.from_settings(FROZEN, source.schema), hot=hot)
    ranks = Ranks(0, 1, rehearsed=2 if kind == "rehearsed" else None)
    pupil = Trainer(FROZEN, source.schema, ranks, placement=None if kind == "rehearsed" else placement)
    before = pupil.predict(samples)
    copy_state(learned, pupil)
    expected = learned.predict(samples)
    assert not torch.allclose(before, expected, atol=1e-3)
    assert torch.equal(pupil.predict(samples), expected)
    pupil.step(samples)
    assert torch.allclose(pupil.predict(samples), expected, atol=1e-6)
