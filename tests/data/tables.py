"""Small Parquet sets with everything that a column can hold, and ways to compare samples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from laconic.data.columns import CategoricalColumns, ColumnSettings, DenseColumns, RandomSplit

COLUMNS = ColumnSettings(
    label="label",
    dense=(DenseColumns(columns="number"), DenseColumns(columns="count", transform="log1p")),
    categorical=(
        CategoricalColumns(columns="id", rows=50),
        CategoricalColumns(columns="words", buckets=20),
        CategoricalColumns(columns="site", buckets=7),
    ),
    split=RandomSplit(fraction=0.25, seed=3),
)


def table(rows, seed=0):
    """``number`` is the row's number, so that samples can be told apart."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(0, 4, rows)
    return pa.table(
        {
            "label": pa.array(draw.integers(0, 2, rows), pa.uint8()),
            "number": pa.array(np.arange(rows), pa.int32()),
            "count": pa.array(draw.integers(0, 100, rows), pa.int16()),
            "id": pa.array(draw.integers(0, 50, rows), pa.int32()),
            "words": pa.array([draw.integers(0, 1000, n).tolist() for n in lengths], pa.list_(pa.int64())),
            "site": pa.array([f"site {n}" for n in draw.integers(0, 30, rows)]).dictionary_encode(),
            "time": pa.array(draw.permutation(rows), pa.int64()),
        }
    )


def write(folder, rows=500, files=2, row_group=60):
    whole = table(rows)
    folder.mkdir(exist_ok=True)
    for n in range(files):
        begin, end = n * rows // files, (n + 1) * rows // files
        pq.write_table(whole.slice(begin, end - begin), folder / f"{n}.parquet", row_group_size=row_group)
    return folder


def bags(samples):
    """Every sample as plain values: label, dense features, a tuple of ids for each table."""
    lookups = samples.lookups
    offsets = lookups.offsets.tolist()
    ids, labels, dense = lookups.ids_L.tolist(), samples.label_B.tolist(), samples.dense_BF.tolist()
    count = len(samples)
    return [
        (
            labels[b],
            tuple(dense[b]),
            tuple(
                tuple(ids[offsets[t * count + b] : offsets[t * count + b + 1]]) for t in range(lookups.tables)
            ),
        )
        for b in range(count)
    ]


def same(a, b):
    return (
        torch.equal(a.label_B, b.label_B)
        and torch.equal(a.dense_BF, b.dense_BF)
        and torch.equal(a.lookups.ids_L, b.lookups.ids_L)
        and torch.equal(a.lookups.offsets, b.lookups.offsets)
        and a.lookups.tables == b.lookups.tables
    )
