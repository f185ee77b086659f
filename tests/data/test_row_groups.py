"""Paths, patterns and URIs become files; what is not there, or not alike, says so."""

from __future__ import annotations

import pytest

from laconic.data.open import ParquetSettings, open_source
from laconic.data.row_groups import RowGroups, data_files
from laconic.errors import ConfigError
from tests.data.tables import write


def names(*paths):
    return [file.shown.rpartition("/")[2] for file in data_files(paths)]


def test_files_folders_and_patterns_in_the_order_of_their_names(tmp_path):
    folder = write(tmp_path / "days", files=12)
    (folder / "notes.txt").write_text("not data")
    every = sorted(f"{n}.parquet" for n in range(12))
    assert names(folder) == every
    assert names(folder / "3.parquet", folder / "1.parquet") == ["3.parquet", "1.parquet"]
    assert names(f"{folder}/1?.parquet") == ["10.parquet", "11.parquet"]
    assert names(f"{folder}/[34].*") == ["3.parquet", "4.parquet"]


def test_a_uri_is_read_through_its_file_system(tmp_path):
    folder = write(tmp_path / "a")
    uri = folder.absolute().as_uri()
    assert names(uri) == ["0.parquet", "1.parquet"]
    (one,) = data_files([f"{uri}/1.*"])
    assert str(one) == f"{uri}/1.parquet"
    assert RowGroups([uri]).rows == RowGroups([folder]).rows


def test_a_path_relative_to_the_working_directory(tmp_path, monkeypatch):
    write(tmp_path / "a")
    monkeypatch.chdir(tmp_path / "a")
    assert names("*.parquet") == names(".") == ["0.parquet", "1.parquet"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none.parquet", r"none\.parquet: no such file$"),
        ("day_*.parquet", r"day_\*\.parquet: no file is named so$"),
        (".", r": no \*\.parquet in this folder$"),
        ("carrier-pigeon://coop/x.parquet", r"expected a path or a URI of a file system that PyArrow knows"),
    ],
)
def test_what_stands_for_no_file_is_refused(tmp_path, monkeypatch, path, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        data_files([path])


def test_only_a_folder_here_has_columns_of_its_own(tmp_path):
    folder = write(tmp_path / "a")
    for path in (folder / "0.parquet", f"{folder}/*.parquet", folder.absolute().as_uri()):
        with pytest.raises(ConfigError, match=r"^data\.columns: expected the TOML file that describes"):
            open_source(ParquetSettings(kind="parquet", path=path))
