"""A file says what was found; one that says what cannot be is refused."""

from __future__ import annotations

import json
import os
import stat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laconic.data import Synthetic, SyntheticSettings
from laconic.errors import ConfigError, FormatError
from laconic.plan.access.access_file import KEY, read_access, write_access
from tests.plan.test_profile import profiled, same


@pytest.fixture(scope="module")
def access():
    """One table that is exact, one with a tail, one with bags."""
    found = profiled(
        Synthetic(SyntheticSettings(rows=[20, 9000, 5], bags=[1, 1, 4], zipf=0.8, samples=20_000)),
        capacity=2000,
    )
    assert [table.exact for table in found.tables] == [True, False, True]
    return found


@pytest.fixture
def file(access, tmp_path):
    write_access(access, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def rewrite(file, change):
    """Change the header (a dictionary) and the columns (another) of a file."""
    table = pq.read_table(file)
    header = json.loads(table.schema.metadata[KEY])
    columns = {name: table[name].to_pylist() for name in table.column_names}
    change(header, columns)
    pq.write_table(pa.table(columns).replace_schema_metadata({KEY: json.dumps(header)}), file)


def test_what_is_written_is_read(access, file):
    back = read_access(file)
    assert (back.source, back.samples) == (access.source, access.samples)
    assert all(same(a, b) for a, b in zip(access.tables, back.tables, strict=True))


def test_anything_reads_the_head(access, file):
    table = pq.read_table(file)
    assert table.schema.names == ["table", "id", "count", "missed"]
    assert pa.types.is_dictionary(table.schema.field("table").type)
    head = table.filter(pa.compute.equal(table["table"].cast("string"), "c1"))
    np.testing.assert_array_equal(head["id"].to_numpy(), access.table("c1").ids_H)
    np.testing.assert_array_equal(head["count"].to_numpy(), access.table("c1").counts_H)


def test_a_file_is_replaced_whole_and_readable_by_others(access, tmp_path):
    path = tmp_path / "a.parquet"
    path.write_text("before")
    write_access(access, path)
    assert os.listdir(tmp_path) == ["a.parquet"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    read_access(path)


def test_no_folder_no_file(access, tmp_path):
    with pytest.raises(ConfigError, match=r"^access: no folder '.*no' to write into; make it first$"):
        write_access(access, tmp_path / "no" / "a.parquet")
    with pytest.raises(ConfigError, match=r"a\.parquet: no such file; laconic profile writes it$"):
        read_access(tmp_path / "a.parquet")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"table,id,count\n", b"PAR1" + bytes(100) + b"PAR1"])
def test_other_bytes_are_refused(tmp_path, content):
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(FormatError, match=r"a\.parquet: not a Parquet file: "):
        read_access(tmp_path / "a.parquet")


def test_a_file_cut_anywhere_is_refused(file):
    whole = file.read_bytes()
    for end in range(0, len(whole), len(whole) // 23):
        file.write_bytes(whole[:end])
        with pytest.raises(FormatError):
            read_access(file)


def test_other_parquet_is_refused(tmp_path):
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    message = r"a\.parquet: no 'laconic\.access' in its metadata; expected a file of laconic profile$"
    with pytest.raises(FormatError, match=message):
        read_access(tmp_path / "a.parquet")


def _set(place, value):
    def change(header, columns):
        *path, last = place
        for key in path:
            header = header[key]
        header[last] = value

    return change


def _column(name, at, value):
    def change(header, columns):
        columns[name][at] = value

    return change


def _drop(name):
    return lambda header, columns: columns.pop(name)


def _text(header, columns):
    columns["count"] = list(map(str, columns["count"]))


def _lose_rows(header, columns):
    for values in columns.values():
        values.pop()


HOSTILE = {
    "version": (_set(["version"], 2), r"laconic\.access\.version: expected 1, got 2$"),
    "unknown field": (_set(["more"], 1), r"laconic\.access\.more: Extra inputs are not permitted, got 1$"),
    "nan": (_set(["tables", 0, "zipf", "exponent"], float("nan")), r"zipf\.exponent: "),
    "drift": (
        _set(["tables", 0, "drift", "distance"], 1.5),
        r"drift\.distance: expected less than or equal to 1",
    ),
    "rows": (_set(["tables", 0, "rows"], 0), r"tables\.0\.rows: expected greater than or equal to 1, got 0$"),
    "huge rows": (_set(["tables", 0, "rows"], 1 << 64), r"tables\.0\.rows: "),
    "names": (
        _set(["tables", 1, "name"], "c0"),
        r"expected tables with different names, got 'c0', 'c0', 'c2'$",
    ),
    "lookups": (
        _set(["tables", 0, "lookups"], 7),
        r"table 'c0': expected 7 lookups, got 20000 in the head and 0 ",
    ),
    "tail": (
        _set(["tables", 0, "tail"], [[3, 2]]),
        r"table 'c0': expected at least one lookup a row in the tail",
    ),
    "tail's type": (
        _set(["tables", 0, "tail"], [[0, 0]]),
        r"tables\.0\.tail\.0\.0: expected greater than or equal ",
    ),
    "fewer rows": (_set(["tables", 1, "rows"], 100), r"table 'c1': expected ids in 0\.\.99, got "),
    "distinct": (
        _set(["tables", 0, "distinct", "rows"], 19),
        r"table 'c0': expected 19 rows of 20 in head and tail",
    ),
    "bounds": (
        _set(["tables", 1, "distinct", "lower"], 9000),
        r"table 'c1': expected bounds around the number",
    ),
    "bags": (_set(["tables", 0, "bags"], [[1, 5]]), r"table 'c0': expected bags of 20000 samples, got 5$"),
    "samples": (_set(["samples"], 9), r"table 'c0': expected bags of 9 samples, got 20000$"),
    "head": (_set(["tables", 0, "head"], 5), r"expected \d+ rows, the heads of all tables, got \d+$"),
    "huge head": (
        _set(["tables", 0, "head"], 2**63 - 1),
        r"expected \d+ rows, the heads of all tables, got \d+$",
    ),
    "wrong table": (_column("table", 3, "c1"), r"expected table 'c0' in rows 0 to 19, got 'c1'$"),
    "negative id": (_column("id", 0, -1), r"table 'c0': expected ids in 0\.\.19, got -1 to 19$"),
    "id twice": (_column("id", 0, 1), r"table 'c0': expected every id once, got 1 repeated$"),
    "rising": (_column("count", 19, 10**6), r"table 'c0': expected counts from 1 on that never rise"),
    "zero": (
        _column("count", 19, 0),
        r"table 'c0': expected counts from 1 on that never rise, got 0 at the end$",
    ),
    "overflow": (_column("count", 0, 2**63 - 1), r"table 'c0': expected 20000 lookups, got 92233720368547"),
    "missed": (_column("missed", 0, -3), r"table 'c0': expected missed lookups from 0 on, got -3$"),
    "null": (_column("id", 0, None), r"column 'id': expected no nulls, got 1$"),
    "no column": (_drop("missed"), r"column 'missed': expected int64, got none$"),
    "text": (_text, r"column 'count': expected int64, got string$"),
    "rows lost": (_lose_rows, r"expected \d+ rows, the heads of all tables, got \d+$"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_is_refused(file, name):
    change, message = HOSTILE[name]
    rewrite(file, change)
    with pytest.raises(FormatError, match=message) as error:
        read_access(file)
    assert str(error.value).startswith(f"{file}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"null"])
def test_a_header_that_is_no_header_is_refused(file, text):
    pq.write_table(pq.read_table(file).replace_schema_metadata({KEY: text}), file)
    with pytest.raises(FormatError, match=r"a\.parquet: laconic\.access: "):
        read_access(file)
