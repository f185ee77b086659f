from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.codecs.cases import OTHER_BOUNDS, find_dumps, parse_dump
from laconic.errors import ConfigError


def write(folder: Path, name: str, values: np.ndarray) -> Path:
    path = folder / name
    values.astype("<f4").tofile(path)
    return path


def test_a_dump_is_read_in_row_major_order(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    dump = parse_dump(write(tmp_path, "a_table_3x2.f32", values))
    assert (dump.name, dump.rows, dump.dim) == ("a_table", 3, 2)
    assert torch.equal(dump.read(), torch.from_numpy(values))


def test_every_dump_yields_whole_and_distinct_rows_at_every_bound(tmp_path: Path) -> None:
    rows = np.array([[0, 1], [2, 3], [0, 1], [2, 3], [4, 5]])
    cases = parse_dump(write(tmp_path, "mine_5x2.f32", rows)).cases()
    assert [case.asked for case in cases] == [bound for bound in OTHER_BOUNDS for _ in range(2)]
    whole, distinct = cases[:2]
    assert (whole.name, whole.rows, whole.relative) == ("mine", 5, True)
    assert (distinct.name, distinct.relative) == ("mine distinct rows", False)
    assert distinct.values_RD.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert whole.bound == distinct.bound == 0.01 * 5


@pytest.mark.parametrize(
    ("name", "bound"), [("tb_table1", 0.03), ("tb_table5", 0.05), ("kaggle_table5", 0.03)]
)
def test_the_papers_dumps_are_measured_at_the_papers_bounds(tmp_path: Path, name: str, bound: float) -> None:
    assert parse_dump(write(tmp_path, f"{name}_1x2.f32", np.zeros(2))).bounds == (bound,)


def test_a_name_without_a_shape_is_refused_with_the_remedy(tmp_path: Path) -> None:
    write(tmp_path, "x.f32", np.zeros(2))
    with pytest.raises(ConfigError) as error:
        find_dumps(tmp_path)
    assert str(error.value) == (
        "data: expected a file name NAME_ROWSxDIM.f32, got 'x.f32'; rename it, for example to 'x_2048x64.f32'"
    )


def test_a_size_that_contradicts_the_name_is_refused_with_both_numbers(tmp_path: Path) -> None:
    write(tmp_path, "x_3x2.f32", np.zeros(5))
    with pytest.raises(ConfigError) as error:
        find_dumps(tmp_path)
    assert str(error.value) == (
        "data: expected 24 bytes in 'x_3x2.f32' for 3 x 2 float32, got 20; "
        "correct the shape in its name or dump it again"
    )


def test_an_empty_dump_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "x_0x2.f32", np.zeros(0))
    with pytest.raises(ConfigError, match=r"expected at least one value in 'x_0x2\.f32', got 0 x 2"):
        find_dumps(tmp_path)


def test_values_that_peers_cannot_encode_are_refused_with_their_place(tmp_path: Path) -> None:
    dump = parse_dump(write(tmp_path, "x_2x2.f32", np.array([0, 1, 2, np.nan])))
    with pytest.raises(ConfigError, match="expected finite values, got nan at row 1, column 1"):
        dump.read()


def test_a_constant_dump_is_refused_for_it_has_no_range(tmp_path: Path) -> None:
    dump = parse_dump(write(tmp_path, "x_2x2.f32", np.full(4, 0.5)))
    with pytest.raises(ConfigError, match=r"x: expected values that differ, got 0\.5 everywhere"):
        dump.cases()


def test_a_folder_without_dumps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected NAME_ROWSxDIM\.f32 files in .*, found none"):
        find_dumps(tmp_path)


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a folder of NAME_ROWSxDIM\.f32 files, got .*nowhere"):
        find_dumps(tmp_path / "nowhere")
