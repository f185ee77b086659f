import io
import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from benchmarks.codecs import benchmark, cases
from benchmarks.codecs.benchmark import CaseResult, measure, render, run_codec_benchmark
from benchmarks.codecs.cases import (
    Case,
    heavy_tailed_gradients,
    relative_case,
    trained_blocks,
    trained_rows,
    zipf_lookups,
)
from benchmarks.codecs.contenders import MATRIX, ONE_BLOCK, OURS, UNBIASED, ZSTD_1, contenders_for
from laconic.errors import ConfigError
from laconic.files import json_text

KEYS = [
    "dump",
    "codec",
    "bound",
    "ratio",
    "encode_gbps",
    "decode_gbps",
    "max_error_over_bound",
    "ideal_ratio",
]
ERROR_BOUNDED = {OURS, OURS + ONE_BLOCK, UNBIASED.name, "VectorLz", "Huffman", "Hybrid", "SZ3", "ZFP"}


@pytest.fixture(scope="module", autouse=True)
def short_turns() -> Iterator[None]:
    """One call each: nothing here depends on times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark, "SHORTEST_TURN_S", 0.0)
        patch.setattr(benchmark, "TURN_BYTES_S", math.inf)
        yield


@pytest.fixture(scope="module")
def small() -> Case:
    rows_RD = trained_rows(np.random.default_rng(0), 64, 16)
    ids = np.random.default_rng(1).integers(0, 64, 256)
    return relative_case("small", torch.from_numpy(rows_RD[ids]), 0.03)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[CaseResult]:
    folder = tmp_path_factory.mktemp("dumps")
    trained_rows(np.random.default_rng(0), 64, 8).tofile(folder / "mine_64x8.f32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "QUICK_ROWS", 4096)
        return run_codec_benchmark(folder, repeats=1, quick=True)


def records(results: list[CaseResult]) -> list[dict[str, Any]]:
    return [record for result in results for record in result.records()]


def text_of(results: list[CaseResult]) -> str:
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(render(results))
    return console.export_text()


def test_every_source_is_measured_and_ours_comes_first(results: list[CaseResult]) -> None:
    assert [case.name for case in results] == [
        *("mine", "mine distinct rows") * 3,
        "normal table",
        "Zipf lookups",
        "Zipf lookups distinct rows",
        "heavy-tailed gradients",
        "1,000 normal blocks of 16 x 32",
        "1,000 trained blocks of 16 x 32",
    ]
    assert {next(iter(case.figures)) for case in results} == {OURS}
    assert [case.asked for case in results[:6]] == [0.01, 0.01, 0.03, 0.03, 0.05, 0.05]


def test_rows_are_plain_json_with_exactly_these_keys(results: list[CaseResult]) -> None:
    assert all(list(record) == KEYS for record in records(results))
    assert len(records(results)) == sum(len(case.figures) for case in results)


def test_codecs_that_promise_a_bound_keep_it(results: list[CaseResult]) -> None:
    for row in records(results):
        if row["codec"] in ERROR_BOUNDED and row["ratio"] is not None:
            assert isinstance(row["max_error_over_bound"], float)
            assert 0 < row["max_error_over_bound"] <= 1, row


def test_tables_are_not_cut(results: list[CaseResult]) -> None:
    text = text_of(results)
    assert "…" not in text
    assert "1,000 blocks in one call reach" in text


def test_the_unbiased_codec_takes_part_where_gradients_are(results: list[CaseResult]) -> None:
    assert [case.name for case in results if case.figures.get(UNBIASED.name)] == ["heavy-tailed gradients"]


@pytest.mark.parametrize(
    ("module", "codecs_"),
    [
        ("pysz", ["SZ3"]),
        ("zfpy", ["ZFP"]),
        ("zstandard", [ZSTD_1, "quantize+zstd-3", "zstd-1, exact"]),
        ("lz4.block", ["quantize+LZ4"]),
        ("blosc2", ["quantize+Blosc2"]),
        ("fbgemm_gpu", ["FBGEMM int8"]),
    ],
)
def test_an_absent_peer_is_shown_as_absent(
    monkeypatch: pytest.MonkeyPatch, small: Case, module: str, codecs_: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    one = measure(small, MATRIX, 1)
    rows = {str(row["codec"]): row for row in one.records()}
    lines = {line.split("│")[1].strip(): line for line in text_of([one]).splitlines() if "│" in line}
    for codec in codecs_:
        assert [rows[codec][key] for key in KEYS[3:7]] == [None] * 4
        assert rows[codec]["ideal_ratio"] == one.ideal_ratio
        assert lines[codec].split("│")[2].strip() == "absent"
    assert rows[OURS]["ratio"] is not None


def test_speeds_are_compared_with_zstd_of_the_same_number_of_blocks() -> None:
    yardsticks = {c.name: c.yardstick for c in contenders_for(trained_blocks(2))}
    assert yardsticks[OURS] == ZSTD_1
    assert yardsticks[OURS + ONE_BLOCK] == ZSTD_1 + ONE_BLOCK


def test_what_is_exact_has_no_error_and_is_compared_with_its_like(small: Case) -> None:
    exact = [c for c in MATRIX if c.name in ("Lossless", "zstd-1, exact")]
    assert {c.yardstick for c in exact} == {"zstd-1, exact"}
    ours, peer = measure(small, exact, 1).figures.values()
    assert ours is not None
    assert ours.max_error_over_bound == 0
    assert ours.ratio > 1.1
    assert peer is None or peer.max_error_over_bound == 0


def test_quantizing_peers_keep_large_codes(small: Case) -> None:
    wide = Case("wide", small.values_RD, 1e-6, "absolute", 1e-6)
    found = measure(wide, [c for c in MATRIX if c.name.startswith("quantize+")], 1).figures.values()
    assert all(figures is None or figures.max_error_over_bound < 1.1 for figures in found)


def test_a_broken_bound_is_shown_and_an_infinite_error_is_null_in_json(small: Case) -> None:
    huge = Case("huge", small.values_RD * 1e9, 1.0, "absolute", 1.0)
    only = [c for c in MATRIX if c.name == "fp16"]
    result = measure(huge, only, 1)
    assert result.figures["fp16"].max_error_over_bound == math.inf  # type: ignore[union-attr]
    assert '"max_error_over_bound": null' in json_text(result.records())
    assert "inf" in text_of([result])


def test_large_cases_get_fewer_rounds(monkeypatch: pytest.MonkeyPatch, small: Case) -> None:
    said: list[str] = []
    monkeypatch.setattr(benchmark, "LARGE_BYTES", 0)
    measure(small, MATRIX[:1], 7, said.append)
    assert len(said) == benchmark.LARGE_ROUNDS


def test_repeats_below_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="repeats: expected at least 1, got 0"):
        run_codec_benchmark(repeats=0)


def test_generated_data_is_the_same_every_time() -> None:
    assert torch.equal(zipf_lookups()[0].values_RD, zipf_lookups()[0].values_RD)
    assert heavy_tailed_gradients(8).bound == heavy_tailed_gradients(8).bound


def test_gradients_are_bound_by_half_their_rms() -> None:
    case = heavy_tailed_gradients(512)
    assert case.bound == pytest.approx(0.5 * float(case.values_RD.double().square().mean().sqrt()))
