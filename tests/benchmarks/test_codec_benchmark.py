import io
import json
import math
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from rich.console import Console
from rich.progress import Progress

from benchmarks.codecs import benchmark, cases
from benchmarks.codecs.benchmark import CodecResult, measure, render, run_codec_benchmark
from benchmarks.codecs.cases import (
    Case,
    heavy_tailed_gradients,
    relative_case,
    trained_blocks,
    trained_rows,
    zipf_lookups,
)
from benchmarks.codecs.contenders import MATRIX, ONE_BLOCK, OURS, UNBIASED, ZSTD_1, contenders_for
from benchmarks.results import Machine
from laconic.errors import ConfigError

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
def result(tmp_path_factory: pytest.TempPathFactory) -> CodecResult:
    folder = tmp_path_factory.mktemp("dumps")
    trained_rows(np.random.default_rng(0), 64, 8).tofile(folder / "mine_64x8.f32")
    with Progress(disable=True) as progress, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "QUICK_ROWS", 4096)
        done = run_codec_benchmark(folder, repeats=1, quick=True, progress=progress)
        assert progress.tasks[0].percentage == pytest.approx(100)
    return done


def text_of(result: CodecResult, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(render(result))
    return console.export_text()


def test_every_source_is_measured_and_ours_comes_first(result: CodecResult) -> None:
    assert [case.name for case in result.cases] == [
        *("mine", "mine distinct rows") * 3,
        "normal table",
        "Zipf lookups",
        "Zipf lookups distinct rows",
        "heavy-tailed gradients",
        "1,000 normal blocks of 16 x 32",
        "1,000 trained blocks of 16 x 32",
    ]
    assert {case.entries[0].codec for case in result.cases} == {OURS}
    assert [case.asked for case in result.cases[:6]] == [0.01, 0.01, 0.03, 0.03, 0.05, 0.05]


def test_rows_are_plain_json_with_exactly_these_keys(result: CodecResult) -> None:
    rows = json.loads(json.dumps(result.rows, allow_nan=False))
    assert all(list(row) == KEYS for row in rows)
    assert len(rows) == sum(len(case.entries) for case in result.cases)


def test_codecs_that_promise_a_bound_keep_it(result: CodecResult) -> None:
    for row in result.rows:
        if row["codec"] in ERROR_BOUNDED and row["ratio"] is not None:
            assert isinstance(row["max_error_over_bound"], float)
            assert 0 < row["max_error_over_bound"] <= 1, row


def test_tables_fit_in_100_columns_and_are_not_cut(result: CodecResult) -> None:
    text = text_of(result)
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    assert "1,000 blocks in one call reach" in text
    assert result.machine.kernels in text.splitlines()[0]


def test_the_unbiased_codec_takes_part_where_gradients_are(result: CodecResult) -> None:
    assert [case.name for case in result.cases if case.figures(UNBIASED.name)] == ["heavy-tailed gradients"]


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
    result = CodecResult(Machine.this(), (one,))
    rows = {str(row["codec"]): row for row in result.rows}
    lines = {line[:27].strip(): line for line in text_of(result).splitlines()}
    for codec in codecs_:
        assert [rows[codec][key] for key in KEYS[3:7]] == [None] * 4
        assert rows[codec]["ideal_ratio"] == one.ideal_ratio
        assert lines[codec].split()[-1] == "absent"
    assert rows[OURS]["ratio"] is not None


def test_speeds_are_compared_with_zstd_of_the_same_number_of_blocks() -> None:
    yardsticks = {c.name: c.yardstick for c in contenders_for(trained_blocks(2))}
    assert yardsticks[OURS] == ZSTD_1
    assert yardsticks[OURS + ONE_BLOCK] == ZSTD_1 + ONE_BLOCK


def test_what_is_exact_has_no_error_and_is_compared_with_its_like(small: Case) -> None:
    exact = [c for c in MATRIX if c.name in ("Lossless", "zstd-1, exact")]
    assert {c.yardstick for c in exact} == {"zstd-1, exact"}
    ours, peer = (entry.figures for entry in measure(small, exact, 1).entries)
    assert ours is not None
    assert ours.max_error_over_bound == 0
    assert ours.ratio > 1.1
    assert peer is None or peer.max_error_over_bound == 0


def test_quantizing_peers_keep_large_codes(small: Case) -> None:
    wide = Case("wide", small.values_RD, 1e-6, "absolute", 1e-6)
    figures = measure(wide, [c for c in MATRIX if c.name.startswith("quantize+")], 1)
    assert all(e.figures is None or e.figures.max_error_over_bound < 1.1 for e in figures.entries)


def test_a_broken_bound_is_shown_and_an_infinite_error_is_null_in_json(small: Case) -> None:
    huge = Case("huge", small.values_RD * 1e9, 1.0, "absolute", 1.0)
    only = [c for c in MATRIX if c.name == "fp16"]
    result = CodecResult(Machine.this(), (measure(huge, only, 1),))
    assert result.cases[0].figures("fp16").max_error_over_bound == math.inf  # type: ignore[union-attr]
    assert result.rows[0]["max_error_over_bound"] is None
    assert "inf" in text_of(result)


def test_large_cases_get_fewer_rounds(monkeypatch: pytest.MonkeyPatch, small: Case) -> None:
    heard: list[float] = []
    monkeypatch.setattr(benchmark, "LARGE_BYTES", 0)
    measure(small, MATRIX[:1], 7, lambda share, what: heard.append(share))
    assert len(heard) == 1 + benchmark.LARGE_ROUNDS
    assert sum(heard) == pytest.approx(1)


def test_repeats_below_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="repeats: expected at least 1, got 0"):
        run_codec_benchmark(repeats=0)


def test_generated_data_is_the_same_every_time() -> None:
    assert torch.equal(zipf_lookups()[0].values_RD, zipf_lookups()[0].values_RD)
    assert heavy_tailed_gradients(8).bound == heavy_tailed_gradients(8).bound


def test_gradients_are_bound_by_half_their_rms() -> None:
    case = heavy_tailed_gradients(512)
    assert case.bound == pytest.approx(0.5 * float(case.values_RD.double().square().mean().sqrt()))
