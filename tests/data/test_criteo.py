"""Criteo's logs: plain and packed, whole and broken."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pytest

from laconic.data.criteo import CATEGORICAL, DENSE, CriteoFile
from laconic.errors import ConfigError, FormatError


def line(label=1, dense=range(13), categorical=range(26)):
    fields = [label, *dense, *(c if isinstance(c, str) else f"{c:08x}" for c in categorical)]
    return "\t".join("" if field is None else str(field) for field in fields) + "\n"


def write(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def read(path, **kw):
    file = CriteoFile(path, **kw)
    tables = [table for table, _ in file.tables()]
    return (pa.concat_tables(tables) if tables else None), file.skipped


def refusal(path, text, **kw):
    with pytest.raises(FormatError) as caught:
        read(write(path, text), **kw)
    return str(caught.value).removeprefix(str(path))


@pytest.mark.parametrize("name", ["day_0", "train.txt", "day_0.gz"])
def test_fields_become_columns(tmp_path, name):
    text = line() + line(0, [-1, None, *range(11)], ["", "ffffffff", "05db9164", *range(23)])
    table, skipped = read(write(tmp_path / name, text))
    assert table.num_rows == 2
    assert skipped == 0
    assert table["label"].to_pylist() == [1, 0]
    assert [table[n].to_pylist() for n in DENSE[:3]] == [[0.0, -1.0], [1.0, None], [2.0, 0.0]]
    assert [table[n].to_pylist() for n in CATEGORICAL[:3]] == [[0, None], [1, 2**32 - 1], [2, 0x05DB9164]]


def test_a_missing_last_newline_and_windows_newlines_do_not_matter(tmp_path):
    for text in (line() + line(0).rstrip("\n"), (line() + line(0)).replace("\n", "\r\n")):
        assert read(write(tmp_path / "x", text))[0]["label"].to_pylist() == [1, 0]


def test_an_empty_file_has_no_lines(tmp_path):
    assert read(write(tmp_path / "x", "")) == (None, 0)
    assert read(write(tmp_path / "x.gz", "")) == (None, 0)


def test_large_files_come_in_blocks_with_their_progress(tmp_path, monkeypatch):
    monkeypatch.setattr("laconic.data.criteo._BLOCK_BYTES", 4096)
    file = CriteoFile(write(tmp_path / "x", line() * 300))
    blocks = [(table.num_rows, done) for table, done in file.tables()]
    assert sum(rows for rows, _ in blocks) == 300
    assert len(blocks) > 10
    assert [done for _, done in blocks] == sorted(done for _, done in blocks)
    assert blocks[-1][1] == file.size


def test_a_test_file_without_labels_is_refused(tmp_path):
    text = line().partition("\t")[2]
    assert refusal(tmp_path / "test.txt", text) == (
        ": line 1: expected 40 fields, got 39; this looks like a test file without labels: use the training file"
    )


@pytest.mark.parametrize("before", [0, 1, 100])
def test_a_line_with_another_number_of_fields_is_refused_with_its_number(tmp_path, before, monkeypatch):
    monkeypatch.setattr("laconic.data.criteo._BLOCK_BYTES", 4096)
    hint = "; skip_bad_lines leaves such lines out"
    for bad, fields in (("1\t2\t3\n", 3), (line().rstrip("\n") + "\tmore\n", 41)):
        assert refusal(tmp_path / "x", line() * before + bad + line()) == (
            f": line {before + 1}: expected 40 fields, got {fields}{hint}"
        )
    assert refusal(tmp_path / "x", line() * before + "\n" + line()) == (
        f": line {before + 1}: expected label 0 or 1, got nothing{hint}"
    )
    assert refusal(tmp_path / "x", line() * before + line(2)) == (
        f": line {before + 1}: expected label 0 or 1, got 2{hint}"
    )


def test_bad_lines_are_skipped_and_counted_if_asked_for(tmp_path):
    text = line() + "1\t2\n" + line(7) + "\n" + line(0) + "x\n"
    table, skipped = read(write(tmp_path / "x", text), skip_bad_lines=True)
    assert table["label"].to_pylist() == [1, 0]
    assert skipped == 4


@pytest.mark.parametrize("skip", [False, True])
def test_a_field_that_is_no_number_is_always_refused(tmp_path, skip):
    text = line() + line(1, ["many", *range(12)])
    assert refusal(tmp_path / "x", text, skip_bad_lines=skip) == ": line 2: i1: expected a number, got 'many'"
    text = line(categorical=["0000000g", *range(25)])
    assert refusal(tmp_path / "x", text, skip_bad_lines=skip) == (
        ": column c1: expected hexadecimal digits, got '0000000g'"
    )


def test_a_packed_file_cut_short_is_refused(tmp_path):
    path = tmp_path / "x.gz"
    whole = gzip.compress((line() * 2000).encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match=r"x\.gz: "):
        read(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"none: no such file$"):
        CriteoFile(tmp_path / "none")
