"""The benchmark of predictions, on a small file with a known skew."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.prediction.benchmark import PLACEMENTS, run_prediction_benchmark
from benchmarks.prediction.by_time import MEASURED_AT, measure_by_time
from laconic.data.synthetic import zipf_rows


def write(folder, repeats: int) -> None:
    """Two tables; in order of time every id comes ``repeats`` times in a row."""
    rng, samples = np.random.default_rng(0), 40_000
    columns = {
        "label": rng.integers(0, 2, samples).astype(np.uint8),
        "time": np.arange(samples, dtype=np.int32),
    }
    for name, rows in (("c_many", 20_000), ("c_few", 300)):
        drawn = zipf_rows(rng.random((1, samples // repeats)), np.array([rows]), 1.0)[0]
        columns[name] = np.repeat(drawn, repeats)
    columns["d_one"] = rng.random(samples).astype(np.float32)
    pq.write_table(pa.table(columns), folder / "small.parquet", row_group_size=8192)


def test_predictions_of_shuffled_batches_are_close(tmp_path):
    write(tmp_path, repeats=1)
    outcomes = list(run_prediction_benchmark(tmp_path, ranks=(2,), batch=512, dim=4, steps=4, counted=(0.5,)))
    assert [outcome.placement for outcome in outcomes[::2]] == list(PLACEMENTS)
    assert [outcome.correlated for outcome in outcomes[:2]] == [False, True]
    # rows that the first half did not have are few, but there are some
    assert all(abs(e) < 0.06 for outcome in outcomes for e in (outcome.forward, outcome.backward))


def test_batches_in_order_of_time_show_their_correlation(tmp_path):
    write(tmp_path, repeats=4)
    at = {measured.batch: measured for measured in measure_by_time(tmp_path)}
    assert 3.5 < at[MEASURED_AT].most < 4.5
    assert at[256].independent > 0.5
    assert abs(at[256].correlated) < 0.05
