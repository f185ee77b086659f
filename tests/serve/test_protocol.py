"""What clients see: ours by hand, and tritonclient unchanged."""

from __future__ import annotations

import gzip
import json
import zlib

import numpy as np
import pytest
import tritonclient.http as triton

from laconic.serve import Engine
from tests.serve.served import DENSE, ROWS, Question, load_from, running

TYPES = {"float32": "FP32", "int64": "INT64", "int32": "INT32"}


@pytest.fixture
def question():
    return Question.draw(np.random.default_rng(1), 7)


@pytest.fixture
def expected(artifact, question):
    return Engine.load(artifact).score(question.dense_BF, question.lookups())


def triton_inputs(tensors, binary):
    inputs = []
    for name, x in tensors.items():
        entry = triton.InferInput(name, list(x.shape), TYPES[x.dtype.name])
        entry.set_data_from_numpy(x, binary_data=binary)
        inputs.append(entry)
    return inputs


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(f"{server.host}:{server.port}") as client:
        yield client


def test_tritonclient_finds_the_server_and_the_model(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("model")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data", "model_repository"]
    metadata = client.get_model_metadata("model")
    [version] = metadata["versions"]
    assert client.is_model_ready("model", version)
    assert not client.is_model_ready("other")
    assert not client.is_model_ready("model", "7")
    assert metadata["inputs"][0] == {"name": "dense", "datatype": "FP32", "shape": [-1, DENSE]}
    assert [entry["name"] for entry in metadata["inputs"]] == [
        "dense", "raw", "item", "shop", "tags", "tags.lengths", "user",
    ]  # fmt: skip
    assert metadata["outputs"] == [{"name": "probability", "datatype": "FP32", "shape": [-1]}]
    assert client.get_model_repository_index() == [{"name": "model", "version": version, "state": "READY"}]


@pytest.mark.parametrize("binary_output", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_tritonclient_gets_the_engines_scores(client, question, expected, binary, binary_output):
    outputs = [triton.InferRequestedOutput("probability", binary_data=binary_output)]
    result = client.infer(
        "model", triton_inputs(question.tensors(), binary), outputs=outputs, request_id="seven"
    )
    np.testing.assert_array_equal(result.as_numpy("probability"), expected)
    assert result.get_response()["id"] == "seven"


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_tritonclient_may_compress_requests(client, question, expected, algorithm):
    inputs = triton_inputs(question.tensors(), True)
    result = client.infer("model", inputs, request_compression_algorithm=algorithm)
    np.testing.assert_array_equal(result.as_numpy("probability"), expected)


def test_tritonclient_hears_why_it_is_refused(client, question):
    question.ids["shop"][3] = 500
    with pytest.raises(triton.InferenceServerException) as refused:
        client.infer("model", triton_inputs(question.tensors(), True))
    assert refused.value.message() == "input 'shop': sample 3: expected an id in [0, 500), got 500"
    assert refused.value.status() == "400"


def test_a_bag_may_come_as_a_matrix(server, artifact, question):
    tags_Bk = np.arange(14).reshape(7, 2) % ROWS["tags"]
    jagged = Question(
        question.dense_BF, {**question.ids, "tags": tags_Bk.reshape(-1)}, np.full(7, 2, np.int32)
    )
    body = jagged.body()
    body["inputs"] = [entry for entry in body["inputs"] if not entry["name"].startswith("tags")]
    body["inputs"].append({"name": "tags", "shape": [7, 2], "datatype": "INT64", "data": tags_Bk.tolist()})
    status, answer, _ = server.infer(body)
    assert status == 200
    engine = Engine.load(artifact)
    scores = np.array(answer["outputs"][0]["data"], np.float32)
    np.testing.assert_array_equal(scores, engine.score(jagged.dense_BF, jagged.lookups()))


def test_no_samples_get_no_scores(server):
    status, answer, _ = server.infer(Question.draw(np.random.default_rng(0), 0).body())
    assert (status, answer["outputs"][0]["data"], answer["outputs"][0]["shape"]) == (200, [], [0])


def test_unknown_ids_go_to_the_row_for_them_where_there_is_one(server, question):
    known = question.body()
    question.ids["user"][:] = 1999
    strange = question.body()
    question.ids["user"][:] = [-1, 2000, 1 << 62, 1999, -(1 << 63), 5000, 2001]
    status, mapped, _ = server.infer(question.body())
    assert status == 200
    assert mapped["outputs"] == server.infer(strange)[1]["outputs"]
    assert mapped["outputs"] != server.infer(known)[1]["outputs"]


def test_raw_features_are_transformed_and_nan_is_a_missing_value(server, question):
    raw_BF = question.dense_BF * 2 + 1
    raw_BF[2, 1] = np.nan
    question.dense_BF = (raw_BF - 1) / 2
    question.dense_BF[2, 1] = 0
    ready = server.infer(question.body())[1]
    body = question.body()
    body["inputs"][0] |= {"name": "raw", "data": raw_BF.reshape(-1).tolist()}
    status, answer, _ = server.infer(json.dumps(body).encode())
    assert status == 200
    np.testing.assert_allclose(answer["outputs"][0]["data"], ready["outputs"][0]["data"], rtol=1e-4)


def test_requests_that_come_together_are_scored_together_and_answered_apart(artifact):
    engine = Engine.load(artifact)
    questions = [Question.draw(np.random.default_rng(seed), 1 + seed % 5) for seed in range(40)]
    with running(load_from(artifact)) as server:
        address = f"{server.host}:{server.port}"
        with triton.InferenceServerClient(address, concurrency=8) as client:
            pending = [client.async_infer("model", triton_inputs(q.tensors(), True)) for q in questions]
            answers = [request.get_result().as_numpy("probability") for request in pending]
        batches = server.ask("GET", "/metrics")[1].decode()
    for question, answer in zip(questions, answers, strict=True):
        alone = engine.score(question.dense_BF, question.lookups())
        np.testing.assert_allclose(answer, alone, rtol=1e-5)  # a batch may be summed in another order
    assert "laconic_batch_samples_sum 120.0" in batches


def test_a_bomb_is_refused_before_it_unfolds(artifact):
    bomb = gzip.compress(b"[" * (24 << 20))
    deflated = zlib.compress(b"{" * (3 << 20))
    with running(load_from(artifact), limits={"body_mb": 1}) as server:
        for body, encoding in ((bomb, "gzip"), (deflated, "deflate")):
            status, answer, _ = server.infer(body, {"Content-Encoding": encoding})
            assert status == 413, answer
            assert "at most 1048576 bytes" in answer["error"]
        assert server.infer(b"\x1f\x8b nonsense", {"Content-Encoding": "gzip"})[0] == 400
        assert server.infer(gzip.compress(b"{}")[:-4], {"Content-Encoding": "gzip"})[0] == 400
        assert server.infer(b"{}", {"Content-Encoding": "br"})[0] == 415
