"""Settings are read whole, or refused with a line for each problem."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError

from laconic.config import Settings, load, parse
from laconic.errors import ConfigError


class Model(Settings):
    dim: int = Field(default=16, ge=1, le=1024)
    """Width of rows."""

    name: str = "dlrm"


class Generated(Settings):
    kind: Literal["generated"]
    rows: int = Field(default=10, gt=0)


class File(Settings):
    kind: Literal["file"]
    path: Path


class Run(Settings):
    model: Model = Model()
    data: Annotated[Generated | File, Field(discriminator="kind")] = Generated(kind="generated")
    tables: tuple[Model, ...] = ()
    named: dict[str, Model] = Field(default_factory=dict)
    rate: float = 0.1
    mode: Literal["fast", "exact"] = "fast"


def refusal(text, *overrides):
    with pytest.raises(ConfigError) as caught:
        parse(text, Run, overrides, where="run.toml")
    return str(caught.value).splitlines()


def test_a_file_becomes_a_frozen_model(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("rate = 0.5\n[model]\ndim = 32\n[data]\nkind = 'file'\npath = 'x.parquet'\n")
    run = load(path, Run)
    assert run.model.dim == 32
    assert run.data == File(kind="file", path=Path("x.parquet"))
    with pytest.raises(ValidationError):
        run.rate = 0.1


def test_docstrings_under_fields_are_their_descriptions():
    assert Model.model_fields["dim"].description == "Width of rows."


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("model.name=/x/y", "/x/y"),
        ("model.name='quoted'", "quoted"),
        ("model.name = spaced out ", "spaced out"),
        ("model.name=a=b", "a=b"),
        ("model.name=", ""),
    ],
)
def test_an_override_is_toml_or_else_a_string(override, value):
    assert parse("", Run, [override]).model.name == value


def test_overrides_win_over_the_file_and_later_ones_over_earlier():
    run = parse(
        "[model]\ndim = 2\nname = 'kept'\n", Run, ["model.dim=3", "model.dim=4", "tables=[{dim = 5}]"]
    )
    assert (run.model.dim, run.model.name, run.tables) == (4, "kept", (Model(dim=5),))


def test_an_unknown_name_shows_what_was_meant():
    assert refusal("[model]\ndmi = 3\n") == [
        "run.toml: model.dmi: no such setting; did you mean 'dim'? (known: dim, name)"
    ]
    assert refusal("xyzzy = 3\n") == [
        "run.toml: xyzzy: no such setting (known: model, data, tables, named, rate, mode)"
    ]


def test_an_unknown_name_is_found_in_lists_in_groups_by_name_and_in_a_choice_of_kinds():
    assert refusal(
        "[[tables]]\n[[tables]]\ndmi = 1\n[named.a]\nnmae = ''\n[data]\nkind = 'file'\npath = ''\nrows = 1\n"
    ) == [
        "run.toml: data.rows: no such setting (known: kind, path)",
        "run.toml: tables.1.dmi: no such setting; did you mean 'dim'? (known: dim, name)",
        "run.toml: named.a.nmae: no such setting; did you mean 'name'? (known: dim, name)",
    ]


def test_every_problem_has_its_line():
    assert refusal("rate = 'x'\nmode = 'slow'\n[model]\ndim = 2000\n[data]\nkind = 'file'\n") == [
        "run.toml: model.dim: expected a value >= 1 and <= 1024, got 2000",
        "run.toml: data.path: required, but not given",
        "run.toml: rate: expected a valid number, unable to parse string as a number, got 'x'",
        "run.toml: mode: expected 'fast' or 'exact', got 'slow'",
    ]


def test_a_list_is_too_short_only_if_nothing_else_is_wrong_with_it():
    class Lists(Settings):
        tables: tuple[Model, ...] = Field(min_length=1)

    for text, line in (
        ("tables = []", "settings: tables: expected at least 1 of them, got 0"),
        ("tables = [{dim = 0}]", "settings: tables.0.dim: expected a value >= 1 and <= 1024, got 0"),
    ):
        with pytest.raises(ConfigError) as caught:
            parse(text, Lists)
        assert str(caught.value) == line


def test_not_a_number_is_no_number():
    assert refusal("rate = nan\n") == ["run.toml: rate: expected a finite number, got nan"]


def test_a_kind_that_does_not_exist_shows_those_that_do():
    assert refusal("[data]\nkind = 'files'\n") == [
        "run.toml: data.kind: expected 'generated', 'file', got 'files'"
    ]
    assert refusal("[data]\nrows = 1\n") == ["run.toml: data.kind: required, but not given"]


def test_a_problem_of_an_override_does_not_blame_the_file():
    assert refusal("", "model.dim=0") == ["--set: model.dim: expected a value >= 1 and <= 1024, got 0"]
    assert refusal("", "model") == ["--set: expected name.of.setting=value, got 'model'"]
    assert refusal("", "model..dim=3") == ["--set: expected name.of.setting=value, got 'model..dim=3'"]
    assert refusal("rate = 1\n", "rate.x=3") == [
        "--set: rate: is a value, not a group of settings; got 'rate.x=3'"
    ]


def test_a_syntax_error_has_a_line():
    (line,) = refusal("rate = 1\n[model\n")
    assert line.startswith("run.toml: line 2, column 7: expected ']'")


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml: no such file$"):
        load(tmp_path / "none.toml", Run)
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory$"):
        load(tmp_path, Run)
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    with pytest.raises(ConfigError, match=r"latin\.toml: expected UTF-8 text, got byte 0xe9$"):
        load(tmp_path / "latin.toml", Run)
