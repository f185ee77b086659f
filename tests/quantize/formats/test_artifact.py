"""Artifacts: read back as written, and refused with one line when anything is wrong."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from laconic.errors import ConfigError, FormatError
from laconic.quantize.formats import (
    LayerPrecision,
    Recipe,
    TablePrecision,
    observe,
    quantize_model,
    read_artifact,
    write_artifact,
)
from laconic.quantize.formats.artifact import _digest, _file_digest
from laconic.quantize.formats.features import Histogram, Population
from tests.quantize.formats.models import samples_for, trained_model, with_precisions

HUGE = json.dumps(
    {"tables.c.0": {"dtype": "U8", "shape": [2**40, 12], "data_offsets": [0, 12 * 2**40]}}
).encode()


@pytest.fixture(scope="module")
def trained():
    return trained_model()


@pytest.fixture(scope="module")
def artifact(trained):
    names = trained.features.table_names
    recipe = Recipe(
        tables={
            names[0]: TablePrecision(format="int4", ranges="greedy"),
            names[1]: TablePrecision(format="int8"),
            names[2]: TablePrecision(format="fp16"),
        },
        layers=dict.fromkeys(trained.shape.layer_names(), LayerPrecision(kind="int8_dynamic")),
    )
    static = LayerPrecision(kind="int8_static", equalized=True, ranges="l2")
    recipe = with_precisions(recipe, **{"top.0": static, "logit": LayerPrecision(kind="bf16")})
    observed = observe(trained, [samples_for(trained, 100)])
    return replace(quantize_model(trained, recipe, observed), metrics={"ne": 0.81})


@pytest.fixture
def folder(tmp_path, trained, artifact):
    write_artifact(tmp_path / "a", artifact, shadow=trained)
    return tmp_path / "a"


def resign(folder, change=lambda text: text):
    """Write a description whose checksums are right, whatever else is wrong."""
    path = folder / "artifact.toml"
    written = path.read_text().partition("\n")[2]
    one_line = re.sub(r"\[\n([^\]{]*),\n\]", lambda found: f"[{' '.join(found[1].split())}]", written)
    text = change(one_line)
    for name in ("model.safetensors", "shadow.safetensors"):
        lines = text.splitlines()
        at = lines.index(f'[files."{name}"]')
        lines[at + 1] = f"bytes = {(folder / name).stat().st_size}"
        lines[at + 2] = f'blake2b = "{_file_digest(folder / name)}"'
        text = "\n".join(lines) + "\n"
    path.write_text(f'blake2b = "{_digest(text.encode())}"\n{text}')


def test_an_artifact_is_read_back_as_it_was_written(folder, artifact):
    back = read_artifact(folder)
    assert (back.shape, back.features, back.recipe) == (artifact.shape, artifact.features, artifact.recipe)
    assert back.metrics == {"ne": 0.81}
    assert all(torch.equal(back.tables[name], table) for name, table in artifact.tables.items())
    for name, parts in artifact.layers.items():
        assert parts.keys() == back.layers[name].keys()
        assert all(torch.equal(back.layers[name][part], tensor) for part, tensor in parts.items())
    assert back.size_bytes == artifact.size_bytes
    assert sorted(path.name for path in folder.iterdir()) == [
        "artifact.toml",
        "model.safetensors",
        "shadow.safetensors",
    ]


def population(features):
    histogram = Histogram(edges=(0.5, 3.0), counts=(4, 0, 9))
    views = {feature.name: histogram for feature in features.dense}
    for table in features.tables:
        views |= {table.name: histogram, f"{table.name}/hash": Histogram(edges=(), counts=(13,))}
        if table.bag:
            views[f"{table.name}.lengths"] = histogram
    return Population(views=views, unknown=dict.fromkeys(features.table_names, 0.25))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("counts = [4, 0, 9]", "counts = [4, 0]", "expected 3 counts, got 2"),
        ("edges = [0.5, 3.0]", "edges = [0.5, 0.5]", "expected edges that ascend"),
        ("counts = [13]", "counts = [-1]", "greater than or equal to 0"),
        ("/hash", "/other", "is missing, or of no feature of the model"),
    ],
)
def test_a_population_is_read_back_or_refused(tmp_path, trained, artifact, old, new, message):
    known = replace(artifact, population=population(artifact.features))
    write_artifact(tmp_path / "a", known, shadow=trained)
    assert read_artifact(tmp_path / "a").population == known.population
    resign(tmp_path / "a", lambda text: text.replace(old, new, 1))
    with pytest.raises(FormatError, match=message):
        read_artifact(tmp_path / "a")


def test_a_folder_with_the_spelling_of_before_is_read():
    """As version 0.1.0 wrote it at first: artefact.toml, and a layer that is equalised."""
    before = read_artifact(Path(__file__).parents[2] / "golden" / "artefact")
    assert before.recipe.layers["top.0"].equalized
    assert before.metrics == {"ne": 0.81}
    assert re.fullmatch("[0-9a-f]{12}", before.version)


def test_the_shadow_is_the_model_in_fp32(folder, trained):
    shadow = read_artifact(folder).read_shadow()
    for name, table in trained.tables.items():
        assert torch.equal(shadow.tables[name].view(torch.float32), table)
    assert torch.equal(shadow.layers["logit"]["weight"], trained.state["logit.weight"])


def test_artifacts_are_never_overwritten_nor_left_half_written(folder, artifact, tmp_path):
    with pytest.raises(ConfigError, match="it exists, and artifacts are never changed"):
        write_artifact(folder, artifact)
    with pytest.raises(ConfigError, match="the shadow is of another model"):
        write_artifact(tmp_path / "b", artifact, shadow=trained_model(dim=8))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_artifact(tmp_path / "file" / "c", artifact)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "file"]


@pytest.mark.parametrize("name", ["artifact.toml", "model.safetensors"])
def test_any_flipped_or_missing_byte_is_noticed(folder, name):
    path = folder / name
    good = path.read_bytes()
    for at in (0, 8, 30, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(FormatError, match="checksum"):
            read_artifact(folder)
    path.write_bytes(good[:-1])
    with pytest.raises(FormatError, match=r"checksum|expected \d+ bytes"):
        read_artifact(folder)


def test_a_damaged_shadow_is_noticed_when_it_is_used(folder):
    path = folder / "shadow.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"abcd")
    artifact = read_artifact(folder)
    with pytest.raises(FormatError, match="checksum does not match"):
        artifact.read_shadow()


def test_missing_files_are_named(folder, tmp_path):
    with pytest.raises(
        ConfigError, match=r"nowhere/artifact\.toml: no such file; expected the folder of an artifact"
    ):
        read_artifact(tmp_path / "nowhere")
    (folder / "model.safetensors").unlink()
    with pytest.raises(FormatError, match=r"model\.safetensors: the file is missing"):
        read_artifact(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("version = 1", "version = 2"), "expected version 1, got 2"),
        (lambda text: text.replace("dim = 16", "dim = 17"), "expected tensor 'tables.c.0' as torch.uint8"),
        (lambda text: text.replace("dim = 16", "dim = 0"), "model.dim: expected a value >= 1, got 0"),
        (
            lambda text: text.replace("tables = 3", "tables = 2"),
            "expected 2 tables and 3 dense features, got 3 and 3",
        ),
        (lambda text: text.replace("rows = 50", "rows = 49"), "expected tensor 'tables.c.0'"),
        (lambda text: text.replace('format = "int4"', 'format = "int3"'), "format"),
        (lambda text: text.replace('format = "int4"', 'format = "int2"'), "expected tensor 'tables.c.0'"),
        (
            lambda text: text.replace("[recipe.layers.logit]", "[recipe.layers.logic]"),
            "the model has no 'logic'",
        ),
        (
            lambda text: text.replace('kind = "bf16"', 'kind = "fp32"'),
            "'layers.logit.weight' as torch.float32",
        ),
        (lambda text: text.replace("bottom = [24]", "bottom = [-1]"), "bottom"),
        (lambda text: text.replace("[model]", "[model]\nmodle = 1"), "model.modle: no such setting"),
        (lambda text: text.replace('name = "d1"', 'name = "d0"'), "names must differ"),
        (lambda text: text + "[[[", "."),
    ],
)
def test_descriptions_that_lie_are_refused(folder, change, message):
    resign(folder, change)
    with pytest.raises(FormatError, match=message):
        read_artifact(folder)


def test_tensors_that_do_not_belong_are_refused(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file({**tensors, "tables.extra": torch.zeros(2)}, path)
    resign(folder)
    with pytest.raises(FormatError, match=r"tensor 'tables\.extra' belongs to nothing"):
        read_artifact(folder)
    del tensors["layers.top.0.range"]
    save_file(tensors, path)
    resign(folder)
    with pytest.raises(
        FormatError,
        match=r"expected tensor 'layers\.top\.0\.range' as torch\.float32 of shape \(2,\), got none",
    ):
        read_artifact(folder)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        struct.pack("<Q", 2**63),
        struct.pack("<Q", 8) + b"not json",
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", len(HUGE)) + HUGE,
    ],
)
def test_hostile_safetensors_are_refused(folder, header):
    (folder / "model.safetensors").write_bytes(header)
    resign(folder)
    with pytest.raises(FormatError, match=r"model\.safetensors"):
        read_artifact(folder)


def test_a_model_that_knows_nothing_of_raw_values_is_written_as_ever(folder):
    """Readers of before refuse keys that they do not know."""
    text = (folder / "artifact.toml").read_text()
    assert all(key not in text for key in ("raw", "values", "vocabular"))
    assert read_artifact(folder).vocabularies == {}


def test_whoever_may_read_the_folder_may_read_its_files(folder):
    modes = {path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == {folder.stat().st_mode & 0o666}
