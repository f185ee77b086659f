"""Raw values get the scores that the trainer gives the samples, however they became features."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from laconic.config import parse
from laconic.data import open_source
from laconic.data.prepare import RawLogs, prepare
from laconic.errors import ConfigError, FormatError
from laconic.quantize.formats import Recipe, TablePrecision, quantize_model, read_artifact, write_artifact
from laconic.quantize.search.run import refresh
from laconic.quantize.search.workbench import make_workbench
from laconic.serve import Engine
from laconic.serve.query import read_query
from laconic.serve.refusal import Refusal
from laconic.serve.settings import RequestLimits
from laconic.serve.tensors import read_inference
from laconic.train.load_trained import load_trained, run_settings
from laconic.train.ranks import Ranks
from laconic.train.run import run
from laconic.train.score_histogram import ScoreHistogram
from laconic.train.settings import RunSettings
from laconic.train.trainer import Trainer
from tests.serve.served import load_from, running

ROWS, EVAL = 1200, 600
COLUMNS = """
label = "label"
[[dense]]
columns = "number"
transform = "standardize"
[[dense]]
columns = "count"
transform = "log1p_standardize"
[[dense]]
columns = "plain"
[[categorical]]
columns = "site"
{site}
[[categorical]]
columns = "words"
{words}
[[categorical]]
columns = "code"
{code}
[[categorical]]
columns = "id"
rows = 40
[split]
kind = "time"
fraction = 0.5
"""
RUN = """
[data]
kind = "parquet"
path = "{path}"
{columns}
[model]
dim = 8
bottom = [8]
top = [8]
[embeddings]
lr = 0.5
[compression]
rows = "exact"
gradients = "exact"
[train]
batch = 100
out = "{out}"
"""


def raw_table():
    """Return times in seconds, which float32 cannot hold, texts, bags and integers, with nulls."""
    draw = np.random.default_rng(5)

    def some(values, null=0.05):
        return [None if draw.random() < null else value for value in values]

    label = draw.integers(0, 2, ROWS)
    return pa.table(
        {
            "label": pa.array(label, pa.int8()),
            "number": pa.array(some((1.7e9 + 3600 * draw.random(ROWS) + 900 * label).tolist())),
            "count": pa.array(some((draw.integers(-3, 1000, ROWS) * (1 + label)).tolist()), pa.int64()),
            "plain": pa.array(some(draw.standard_normal(ROWS).tolist())),
            "site": pa.array(some([f"s\u00edte {n}" for n in draw.integers(0, 30, ROWS) + 9 * label])),
            "words": pa.array(
                [draw.integers(-50, 50, n).tolist() + [None] * int(n > 2) for n in draw.integers(0, 4, ROWS)],
                pa.list_(pa.int64()),
            ),
            "code": pa.array(some([f"c{n}" for n in draw.integers(0, 90, ROWS)])),
            "id": pa.array(some(draw.integers(-2, 45, ROWS).tolist()), pa.int32()),
        }
    )


@dataclass
class World:
    """A trained run, the raw inputs of its evaluation samples, and the trainer's logits of them."""

    folder: object
    inputs: list[dict]
    label_B: torch.Tensor
    logits_B: torch.Tensor


def world(tmp, inputs, path, columns=""):
    settings = parse(RUN.format(path=path, columns=columns, out=tmp / "run"), RunSettings)
    run(settings, resume=False, console=None)
    trained, source = load_trained(tmp / "run"), open_source(settings.data)
    trainer = Trainer(settings, source.schema, Ranks(0, 1))
    trainer.model.load_state_dict(trained.state)
    for name, rows in trained.tables.items():
        trainer.rows.table_shard(name)[1].copy_(rows[:])
    (samples,) = source.batches("eval", global_batch=EVAL, rank=0, ranks=1)
    return World(tmp / "run", inputs, samples.label_B, trainer.predict(samples))


def parquet_inputs(table, *, listed_id=False):
    """The last rows as a client has them: nulls stay null, bags are lists with lengths."""
    rows = table.slice(ROWS - EVAL)
    dense = list(zip(*(rows[name].to_pylist() for name in ("number", "count", "plain")), strict=True))
    bags = rows["words"].to_pylist()
    words = [word for bag in bags for word in bag]
    ids = [-1 if value is None else value for value in rows["id"].to_pylist()]
    return [
        {"name": "raw", "datatype": "FP64", "shape": [EVAL, 3], "data": [list(row) for row in dense]},
        {"name": "site.raw", "datatype": "BYTES", "shape": [EVAL], "data": rows["site"].to_pylist()},
        {"name": "words.raw", "datatype": "INT64", "shape": [len(words)], "data": words},
        {"name": "words.lengths", "datatype": "INT32", "shape": [EVAL], "data": [len(bag) for bag in bags]},
        {"name": "code.raw", "datatype": "BYTES", "shape": [EVAL], "data": rows["code"].to_pylist()},
        {"name": "id", "datatype": "INT64", "shape": [EVAL], "data": ids},
    ]


def prepared_world(tmp):
    """Counted texts and integers, a vocabulary that was given, and a dense feature of each kind."""
    (tmp / "codes.txt").write_text("".join(f"c{n}\n" for n in range(0, 90, 2)))
    pq.write_table(raw_table(), tmp / "raw.parquet")
    text = COLUMNS.format(site="", words="", code='vocabulary = "codes.txt"')
    (tmp / "columns.toml").write_text(text)
    prepare(RawLogs([tmp / "raw.parquet"], "parquet", tmp / "columns.toml"), tmp / "data", min_count=8)
    (tmp / "raw.parquet").unlink()
    (tmp / "codes.txt").unlink()
    return world(tmp, parquet_inputs(raw_table()), tmp / "data")


def columns_world(tmp):
    """The same straight from the file: two hashed, one listed."""
    (tmp / "sites.txt").write_text("".join(f"s\u00edte {n}\n" for n in range(35)), encoding="utf-8")
    pq.write_table(raw_table(), tmp / "raw.parquet")
    text = COLUMNS.format(site='vocabulary = "sites.txt"', words="buckets = 20", code="buckets = 11")
    (tmp / "columns.toml").write_text(text)
    columns = f'columns = "{tmp / "columns.toml"}"'
    return world(tmp, parquet_inputs(raw_table()), tmp / "raw.parquet", columns)


def criteo_world(tmp):
    """Hexadecimal categories, empty fields, negative integers."""
    draw = np.random.default_rng(6)
    dense = [
        [None if draw.random() < 0.1 else int(n) for n in row] for row in draw.integers(-3, 99, (ROWS, 13))
    ]
    values = draw.integers(0, 40, (ROWS, 26)) + (0xFFFFFFE0 << 16 * 2) // 7
    values = [["" if draw.random() < 0.1 else f"{n:x}" for n in row] for row in values.tolist()]
    labels = draw.integers(0, 2, ROWS)
    lines = ["\t".join([str(y), *("" if x is None else str(x) for x in d), *c]) + "\n" for y, d, c in zip(labels, dense, values, strict=True)]  # fmt: skip
    (tmp / "day_0").write_text("".join(lines))
    prepare(RawLogs([tmp / "day_0"]), tmp / "data", min_count=5)
    schema = tmp / "data" / "schema.toml"
    schema.write_text(schema.read_text().replace('kind = "random"\nfraction = 0.1\nseed = 0', 'kind = "time"\nfraction = 0.5'))  # fmt: skip
    inputs = [{"name": "raw", "datatype": "FP64", "shape": [EVAL, 13], "data": dense[ROWS - EVAL :]}]
    for c in range(26):
        column = [row[c] for row in values[ROWS - EVAL :]]
        inputs.append({"name": f"c{c + 1}.raw", "datatype": "BYTES", "shape": [EVAL], "data": column})
    return world(tmp, inputs, tmp / "data")


WORLDS = {"prepared": prepared_world, "columns": columns_world, "criteo": criteo_world}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    made = {}

    def get(name):
        if name not in made:
            made[name] = WORLDS[name](tmp_path_factory.mktemp(name))
        return made[name]

    return get


def fp32(trained):
    return quantize_model(trained, Recipe.uniform(trained.features.table_names, trained.shape.layer_names()))


@pytest.fixture(scope="module")
def artifacts(worlds, tmp_path_factory):
    made = {}

    def get(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("artifacts") / name
            write_artifact(made[name], fp32(load_trained(worlds(name).folder)))
        return made[name]

    return get


def answered(folder, inputs):
    """Score as a server does, without its sockets."""
    engine = Engine.load(folder)
    inference = read_inference(json.dumps({"inputs": inputs}).encode(), None)
    query = read_query(inference.tensors, engine.signature, RequestLimits())
    return engine.score(*query.features())


@pytest.mark.parametrize("name", WORLDS)
def test_raw_values_are_scored_as_the_trainer_does(worlds, artifacts, name):
    expected_B = torch.sigmoid(worlds(name).logits_B.double()).numpy()
    np.testing.assert_allclose(answered(artifacts(name), worlds(name).inputs), expected_B, atol=1e-6, rtol=0)
    assert expected_B.std() > 0.01  # else every transformation would do


@pytest.mark.parametrize("name", ["prepared", "columns"])
def test_a_refreshed_artifact_scores_raw_values_within_its_budget(worlds, artifacts, tmp_path, name):
    here, budget = worlds(name), 0.01
    trained = load_trained(here.folder)
    source = open_source(run_settings(here.folder).data)
    bench = make_workbench(trained, source, most=EVAL, seed=0, progress=lambda *_: None)
    recipe = Recipe.uniform(
        trained.features.table_names, trained.shape.layer_names(), table=TablePrecision(format="int8")
    )
    old = replace(read_artifact(artifacts(name)), recipe=recipe)
    refreshed = refresh(bench, old, budget, lambda *_: None)
    assert refreshed.within
    write_artifact(tmp_path / "new", refreshed.artifact, shadow=trained)
    served_B = answered(tmp_path / "new", here.inputs).astype(np.float64)
    entropy = []
    for logits_B in (here.logits_B, torch.from_numpy(np.log(served_B / (1 - served_B)))):
        samples = ScoreHistogram()
        samples.add(logits_B.float(), here.label_B)
        entropy.append(samples.normalized_entropy())
    assert 0 < abs(entropy[1] / entropy[0] - 1) < budget


def test_a_run_says_which_values_it_took_for_something_else(worlds):
    """Nulls and negative counts of the raw file; what was prepared has none any more."""
    said = {}
    for name in ("columns", "prepared"):
        lines = (worlds(name).folder / "metrics.jsonl").read_text().splitlines()
        said[name] = [entry["line"] for entry in map(json.loads, lines) if entry["kind"] == "warning"]
    counts = raw_table()["count"].to_pylist()
    negative = sum(n is not None and n < 0 for n in counts)
    assert f"; count: {counts.count(None)} null, {negative} negative; " in said["columns"][-1]
    assert not any("taken for" in line for line in said["prepared"])


def test_over_the_wire_raw_inputs_are_listed_and_scored(worlds, artifacts):
    here = worlds("prepared")
    with running(load_from(artifacts("prepared"))) as server:
        listed = server.ask("GET", "/v2/models/model")[1]["inputs"]
        status, answer, _ = server.infer({"inputs": here.inputs})
        text = server.ask("GET", "/metrics")[1].decode()
    assert {entry["name"]: (entry["datatype"], entry.get("parameters")) for entry in listed} == {
        "dense": ("FP32", None),
        "raw": ("FP64", {"instead_of": "dense"}),
        "site": ("INT64", None),
        "site.raw": ("BYTES", {"instead_of": "site"}),
        "words": ("INT64", None),
        "words.raw": ("INT64", {"instead_of": "words"}),
        "words.lengths": ("INT32", None),
        "code": ("INT64", None),
        "code.raw": ("BYTES", {"instead_of": "code"}),
        "id": ("INT64", None),
    }
    assert status == 200
    expected_B = torch.sigmoid(here.logits_B.double()).numpy()
    np.testing.assert_allclose(answer["outputs"][0]["data"], expected_B, atol=1e-6, rtol=0)
    counts = [row[1] for row in here.inputs[0]["data"]]
    negative, missing = sum(n is not None and n < 0 for n in counts), counts.count(None)
    assert f'laconic_raw_values_total{{feature="count",what="negative"}} {float(negative)}' in text
    assert f'laconic_raw_values_total{{feature="count",what="missing"}} {float(missing)}' in text


def test_texts_come_as_binary_too(worlds, artifacts):
    inputs, raw = [], b""
    for entry in worlds("columns").inputs:
        plain = {"raw": np.float64, "words.raw": np.int64, "words.lengths": np.int32, "id": np.int64}
        if entry["name"] in plain:
            data = [0 if value is None else value for value in entry["data"]]
            data = np.array(data, dtype=plain[entry["name"]]).tobytes()
        else:
            texts = [(text or "").encode() for text in entry["data"]]
            data = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
        raw += data
        inputs.append({**entry, "data": None, "parameters": {"binary_data_size": len(data)}})
        del inputs[-1]["data"]
    head = json.dumps({"inputs": inputs}).encode()
    tensors = read_inference(head + raw, len(head)).tensors
    expected = [(text or "").encode() for text in worlds("columns").inputs[1]["data"]]
    assert tensors["site.raw"].tolist() == expected
    assert np.isnan(tensors["raw"]).any()


def changed(inputs, which, **change):
    return [{**entry, **change} if entry["name"] == which else entry for entry in inputs]


def two(inputs):
    """The first two samples."""
    first = {
        entry["name"]: {**entry, "shape": [2, *entry["shape"][1:]], "data": entry["data"][:2]}
        for entry in inputs
    }
    first["words.lengths"]["data"] = [1, 1]
    first["raw"]["data"] = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    return list(first.values())


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("raw", {"data": [0, 0, 0, 0, float("inf"), 0]}, "input 'raw': sample 1, feature 'count': expected a finite number, got inf"),
        ("raw", {"data": [0, 0, 1e300, 0, 0, 0]}, "input 'raw': sample 0, feature 'plain': expected a number that float32 can hold once transformed, got 1e+300"),
        ("raw", {"datatype": "INT64"}, "input 'raw': expected datatype FP64, FP32, got 'INT64'; convert before sending"),
        ("raw", {"name": "dense", "datatype": "FP32", "data": [None] * 6}, "input 'dense': expected numbers, got null among them"),
        ("site.raw", {"datatype": "INT64", "data": [1, 2]}, "input 'site.raw': expected BYTES, got int64"),
        ("site.raw", {"name": "site"}, "input 'site': expected datatype FP32, INT64, INT32, got 'BYTES'; send text as 'site.raw'"),
        ("site.raw", {"data": ["a", 3]}, "input 'site.raw': expected strings, got a number among them"),
        ("words.raw", {"datatype": "BYTES", "data": ["a", "b"]}, "input 'words.raw': expected INT64, got BYTES"),
        ("id", {"name": "id.raw"}, "input 'id.raw': the artifact has neither hash nor vocabulary for 'id'; send ids as 'id'"),
        ("id", {"name": "site"}, "request: has both 'site' and 'site.raw'; leave one out"),
    ],
)  # fmt: skip
def test_raw_values_that_cannot_be_are_refused(worlds, artifacts, name, change, text):
    with pytest.raises(Refusal) as refused:
        answered(artifacts("prepared"), changed(two(worlds("prepared").inputs), name, **change))
    assert (refused.value.status, str(refused.value)) == (400, text)


def test_text_that_is_not_hexadecimal_is_refused(worlds, artifacts):
    inputs = worlds("criteo").inputs
    column = ["xyz", *inputs[1]["data"][1:]]
    with pytest.raises(
        Refusal, match=r"^input 'c1\.raw': value 0: expected up to 16 hexadecimal digits, got 'xyz'$"
    ):
        answered(artifacts("criteo"), changed(inputs, "c1.raw", data=column))


def test_an_unknown_value_is_scored_and_counted_as_unknown(worlds, artifacts):
    engine = Engine.load(artifacts("prepared"))
    inputs = two(worlds("prepared").inputs)
    queries = []
    for site in (["never seen", "x"], [None, None]):
        entries = changed(inputs, "site.raw", data=site)
        inference = read_inference(json.dumps({"inputs": entries}).encode(), None)
        queries.append(read_query(inference.tensors, engine.signature, RequestLimits()))
    rows = engine.signature.schema.categorical[0].rows
    for query in queries:
        assert query.ids_of(0).tolist() == [rows - 1, rows - 1]
        assert query.unknown_T[0] == 2


def test_data_prepared_before_transformations_were_recorded_refuses_raw_values(worlds, tmp_path):
    here = worlds("prepared")
    schema = next(here.folder.parent.glob("data/schema.toml"))
    text = schema.read_text()
    try:
        schema.write_text("\n".join(row for row in text.splitlines() if not row.startswith("prepared")))
        write_artifact(tmp_path / "old", fp32(load_trained(here.folder)))
    finally:
        schema.write_text(text)
    entries = Engine.load(tmp_path / "old").signature.inputs()
    assert [entry["name"] for entry in entries] == ["dense", "site", "words", "words.lengths", "code", "id"]
    with pytest.raises(
        Refusal, match=r"^input 'raw': the artifact does not say how raw values become 'dense'; send"
    ):
        answered(tmp_path / "old", here.inputs)


def test_a_damaged_vocabulary_is_refused(artifacts, tmp_path):
    for file in artifacts("prepared").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / "vocabularies.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        FormatError, match=r"vocabularies\.safetensors: its checksum does not match artifact\.toml"
    ):
        read_artifact(tmp_path)
    path.unlink()
    with pytest.raises(FormatError, match=r"vocabularies\.safetensors: the file is missing"):
        read_artifact(tmp_path)


def test_a_vocabulary_that_does_not_fit_is_refused(worlds):
    trained = load_trained(worlds("prepared").folder)
    with pytest.raises(
        ConfigError, match=r"table 'site': expected a vocabulary if raw is 'vocabulary', got none"
    ):
        replace(trained, vocabularies={})


def test_a_precision_that_changes_sorts_no_vocabulary_again(artifacts, monkeypatch):
    engine = Engine.load(artifacts("prepared"))
    signature = engine.signature
    monkeypatch.setattr("laconic.serve.engine.RawIds", None)
    assert engine.shadow().signature is signature
