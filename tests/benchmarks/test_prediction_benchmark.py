"""The benchmark of predictions, on a small file with a known skew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.placement.case import find_cases
from benchmarks.placement.prediction import WORST, measure_traffic
from laconic.data.synthetic import zipf_rows
from laconic.train.settings import ModelSettings
from tests.oracle.by_time import MEASURED_AT, measure_by_time


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
    """Lookups are counted on the first half; batches of the second half are sent."""
    write(tmp_path, repeats=1)
    case = replace(find_cases(tmp_path, tmp_path)[0], batch=512, model=ModelSettings(dim=4), counted=0.5)
    rows = measure_traffic([case], (2,), steps=4, say=lambda _: None)
    assert {row.placement for row in rows} >= {"table", "table_rows", "row", "small_replicated"}
    assert {(row.data, row.counted, row.measured_bytes > 0) for row in rows} == {("small", 0.5, True)}
    # rows that the first half did not have are few, but there are some
    sent = [row for row in rows if row.direction in ("forward", "backward", WORST)]
    assert all(abs(row.predicted_bytes / row.measured_bytes - 1) < 0.06 for row in sent)


def test_batches_in_order_of_time_show_their_correlation(tmp_path):
    write(tmp_path, repeats=4)
    at = {measured.batch: measured for measured in measure_by_time(tmp_path)}
    assert 3.5 < at[MEASURED_AT].most < 4.5
    assert at[256].independent > 0.5
    assert abs(at[256].correlated) < 0.05
