"""Settings of a run are refused with the place, the value and a way out."""

from __future__ import annotations

import pytest

from laconic.config import parse
from laconic.errors import ConfigError
from laconic.train.settings import RunSettings

DATA = '[data]\nkind = "synthetic"\n'


def refused(text, *overrides):
    with pytest.raises(ConfigError) as caught:
        parse(DATA + text, RunSettings, overrides, where="run.toml")
    return str(caught.value)


def test_an_unknown_setting_is_named_with_the_one_that_was_meant():
    message = refused("[train]\nstpes = 3")
    assert message.startswith(
        "run.toml: train.stpes: no such setting; did you mean 'steps'? (known: batch, epo"
    )
    assert refused("[compression]\ngradient = 1").startswith(
        "run.toml: compression.gradient: no such setting; did you mean 'gradients'? (known: policy, rows,"
    )
    assert refused("[trian]").startswith(
        "run.toml: trian: no such setting; did you mean 'train'? (known: data,"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train]\nbatch = 0", "run.toml: train.batch: expected a value >= 1, got 0"),
        ("[train]\nseed = 1048576", "run.toml: train.seed: expected a value >= 0 and < 1048576, got 1048576"),
        ("[train]\ntimeout_s = 0", "run.toml: train.timeout_s: expected a value > 0, got 0"),
        ("[embeddings]\nlr = -1.0", "run.toml: embeddings.lr: expected a value >= 0, got -1.0"),
        ("[model]\nbottom = [8, 0]", "run.toml: model.bottom.1: expected greater than or equal to 1, got 0"),
    ],
)
def test_a_value_out_of_range_is_shown_with_the_range(text, message):
    assert refused(text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train]\nbatch = 'many'", "run.toml: train.batch: expected a valid integer, unable to parse string as an integer, got 'many'"),
        ("[train]\nbatch = 1.5", "run.toml: train.batch: expected a valid integer, got a number with a fractional part, got 1.5"),
        ("[train]\ntensorboard = 7", "run.toml: train.tensorboard: expected a valid boolean"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_shown(text, message):
    assert refused(text).startswith(message)


def test_every_problem_has_a_line():
    lines = refused("[train]\nbatch = 0\nepochs = 0\n[model]\ndmi = 3").splitlines()
    assert [line.split(":")[1].strip() for line in lines] == ["model.dmi", "train.batch", "train.epochs"]


def test_an_override_wins_over_the_file_and_is_named_in_an_error():
    settings = parse(
        DATA + "[train]\nbatch = 8",
        RunSettings,
        ("train.batch=16", "train.out=elsewhere", "model.top=[4, 2]"),
    )
    assert settings.train.batch == 16
    assert str(settings.train.out) == "elsewhere"
    assert settings.model.top == (4, 2)
    assert refused("", "train.batch=0") == "--set: train.batch: expected a value >= 1, got 0"
    assert refused("", "train.bacth=1").startswith(
        "--set: train.bacth: no such setting; did you mean 'batch'?"
    )
    assert refused("", "train") == "--set: expected name.of.setting=value, got 'train'"


def test_rows_of_a_window_are_rows_that_are_held_now():
    with pytest.raises(ConfigError, match=r"data\.window_rows: is data\.held_rows now$"):
        parse('[data]\nkind = "parquet"\npath = "x"\nwindow_rows = 5\n', RunSettings)
