"""Plans come back as they were written, and a file that is not a plan says why."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from laconic.config import parse
from laconic.cost.load import PredictedBytes
from laconic.errors import ConfigError, FormatError, PlanError
from laconic.plan.plan_file import (
    EmbeddingsMemory,
    PlacementPlan,
    PredictedStep,
    TablePlan,
    check_plan,
    read_plan,
    read_row_ids,
    write_plan,
    write_row_ids,
)

HOT = {"user": np.array([0, 3, 99]), 'odd "näme".\n\x7f/x': np.array([4])}
WARM = {"user": np.array([1, 2, 50, 98])}
PLAN = PlacementPlan(
    ranks=2,
    batch=64,
    dim=8,
    predicted=PredictedStep(
        step_ms=1.5,
        samples_per_s=1e5,
        bottleneck="link of rank 1",
        ids_bytes=1,
        forward_bytes=2,
        backward_bytes=3,
        hot_bytes=4,
        dense_bytes=5,
    ),
    embeddings_memory=EmbeddingsMemory(ram_N=(10, 20), hot=3, files_N=(0, 7)),
    tables={
        "user": TablePlan(
            rows=100, sharding="row", hot=3, cold=True, warm=4, bound=1e-300, why="'because'\t\\"
        ),
        'odd "näme".\n\x7f/x': TablePlan(rows=5, sharding="table", owner=1, hot=1, exact="rows"),
        "site": TablePlan(rows=7, sharding="replicated", predicted=PredictedBytes(ids=1 / 3, backward=1e22)),
        "tags": TablePlan(rows=2**40 - 1, sharding="table", send="pooled", exact=True),
    },
)


def test_a_plan_comes_back_as_it_was_written(tmp_path):
    written = write_plan(tmp_path / "a.plan.toml", PLAN, HOT, WARM)
    plan, hot, warm = read_plan(tmp_path / "a.plan.toml")
    assert plan == written
    assert (plan.hot_rows, plan.warm_rows) == ("a.plan.hot.npz", "a.plan.warm.npz")
    assert [*warm] == ["user"]
    assert warm["user"].tolist() == [1, 2, 50, 98]
    assert list(plan.tables) == list(PLAN.tables)
    assert {name: ids.tolist() for name, ids in hot.items()} == {n: i.tolist() for n, i in HOT.items()}
    with np.load(tmp_path / "a.plan.hot.npz") as arrays:  # what the format promises to others
        assert arrays["user"].tolist() == [0, 3, 99]


def test_a_plan_without_hot_and_warm_rows_is_one_file(tmp_path):
    plan = PlacementPlan(ranks=1, batch=1, dim=1, tables={"t": TablePlan(rows=1, sharding="row")})
    write_plan(tmp_path / "plan.toml", plan, {}, {})
    assert read_plan(tmp_path / "plan.toml") == (plan, {}, {})
    assert [file.name for file in tmp_path.iterdir()] == ["plan.toml"]


def test_the_same_ids_make_the_same_file(tmp_path):
    assert write_row_ids(tmp_path / "a.npz", HOT) == write_row_ids(tmp_path / "b.npz", HOT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("format = 2", "format: expected 1, got 2"),
        ("ranks = 0", "ranks: expected a value >= 1, got 0"),
        ('tables.t.shardin = "row"', "tables.t.shardin: no such setting; did you mean 'sharding'?"),
        (
            'tables.t.sharding = "column"',
            "tables.t.sharding: expected 'table', 'row' or 'replicated', got 'column'",
        ),
        ("tables.t.owner = 0", "only sharding 'table' has an owner, got owner 0 and 'row'"),
        (
            "tables.t.warm = 1",
            "only a table with cold = true has warm rows, got warm 1; all its rows are in memory",
        ),
        ("tables.t.warm = -1", "tables.t.warm: expected a value >= 0, got -1"),
        ('warm_rows = "/x.npz"', "expected the name of a file in the plan's folder, got '/x.npz'"),
        ('warm_rows_sha256 = "12"', "warm_rows_sha256"),
        ("tables.t.hot = 11", "expected at most 10 hot rows, one for each row, got 11"),
        ('hot_rows = "../x.npz"', "expected the name of a file in the plan's folder, got '../x.npz'"),
        ("tables.t.predicted.ids = nan", "tables.t.predicted.ids: expected a finite number, got nan"),
        ("tables.t.predicted.ids = -1.0", "tables.t.predicted.ids: expected a value >= 0, got -1.0"),
    ],
)
def test_what_cannot_be_is_refused(change, message):
    text = 'ranks = 2\nbatch = 4\ndim = 8\n[tables.t]\nrows = 10\nsharding = "row"'
    with pytest.raises(ConfigError) as error:
        parse(text, PlacementPlan, [change.replace(" = ", "=")])
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"sharding": "replicated", "hot": 1}, "a replicated table is everywhere already"),
        ({"sharding": "replicated", "send": "pooled"}, "a replicated table is everywhere already"),
        ({"sharding": "row", "send": "pooled", "hot": 1}, "only a table that sends rows has hot ones"),
        (
            {"sharding": "row", "hot": 6, "cold": True, "warm": 5},
            "expected at most 10 rows that are hot or warm, got 6 and 5",
        ),
        ({"sharding": "row", "exact": True, "bound": 0.1}, "expected bound or exact = True, got both"),
        (
            {"sharding": "row", "exact": "gradients", "gradient_bound": 0.1},
            "expected gradient_bound or exact = 'gradients', got both",
        ),
    ],
)
def test_tables_that_contradict_themselves_are_refused(table, message):
    with pytest.raises(ValueError, match=message):
        TablePlan(rows=10, **table)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ({"ranks": 3}, "plan: made for 2 ranks, got 3; start 2, or plan again"),
        ({"dim": 16}, "plan: made for embeddings of 8 dimensions, got 16"),
        ({"rows": {"user": 100, "page": 5}}, "plan: no table 'page' \\(known: user, site\\)"),
        ({"rows": {"user": 101, "site": 7}}, "plan: table 'user' has 100 rows, that of the run 101"),
        ({"rows": {"user": 100}}, "plan: the run has no table 'site' \\(known: user\\)"),
    ],
)
def test_a_plan_for_another_run_is_refused(run, message):
    tables = {"user": TablePlan(rows=100, sharding="row"), "site": TablePlan(rows=7, sharding="replicated")}
    plan = PlacementPlan(ranks=2, batch=64, dim=8, tables=tables)
    own = {"ranks": 2, "dim": 8, "rows": {"user": 100, "site": 7}}
    check_plan(plan, **own)
    with pytest.raises(PlanError, match=message):
        check_plan(plan, **(own | run))


def _npy(ids, **header):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(ids), version=(1, 0))
    return file.getvalue()


def _archive(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def _huge():
    """Claim 2^60 ids in a header without any."""
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1152921504606846976,), }"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected an .npz file, got one that is damaged"),
        (_archive(t=_npy([1, 2]))[:-30], "expected an .npz file, got one that is damaged"),
        (_archive(u=_npy([1, 2])), r"expected arrays \['t.npy'\], got \['u.npy'\]"),
        (_archive(t=_npy([1, 2]), u=_npy([1])), "expected arrays"),
        (_archive(t=b"ids"), "table 't': expected an .npy array"),
        (_archive(t=_huge()), r"expected 2 ids as <i8, got <i8 of shape \(1152921504606846976,\)"),
        (_archive(t=_npy([1.0, 2.0])), "expected 2 ids as <i8, got <f8"),
        (_archive(t=_npy(np.array([1, "a"], object))), "expected 2 ids as <i8, got [|]O"),
        (_archive(t=_npy([[1, 2]])), "expected 2 ids as <i8"),
        (_archive(t=_npy([1, 2, 3])), "expected 2 ids as <i8"),
        (_archive(t=_npy([1, 2])[:-1]), "expected 16 bytes for 2 ids, got 15"),
        (_archive(t=_npy([1, 2]) + bytes(10**6)), "expected 16 bytes for 2 ids, got"),
        (_archive(t=_npy([2, 2])), "expected ascending ids from 0 to 9, got 2, 2"),
        (_archive(t=_npy([2, 1])), "expected ascending ids from 0 to 9, got 2, 1"),
        (_archive(t=_npy([-1, 1])), "expected ascending ids"),
        (_archive(t=_npy([1, 10])), "expected ascending ids"),
    ],
)
def test_hostile_files_of_ids_are_refused(tmp_path, content, message):
    import hashlib

    file = tmp_path / "plan.hot.npz"
    file.write_bytes(content)
    with pytest.raises(FormatError, match=message):
        read_row_ids(file, hashlib.sha256(content).hexdigest(), {"t": (2, 10)})


def test_a_file_of_other_hot_rows_is_refused(tmp_path):
    write_plan(tmp_path / "plan.toml", PLAN, HOT, WARM)
    file = tmp_path / "plan.hot.npz"
    write_row_ids(file, HOT | {"user": np.array([0, 3, 98])})
    with pytest.raises(FormatError, match="this is not the file that was written with the plan"):
        read_plan(tmp_path / "plan.toml")
    file.unlink()
    with pytest.raises(FormatError, match="it belongs beside the plan"):
        read_plan(tmp_path / "plan.toml")


def test_a_file_of_hot_rows_is_no_file_of_warm_rows(tmp_path):
    write_plan(tmp_path / "plan.toml", PLAN, HOT, WARM)
    file = tmp_path / "plan.warm.npz"
    file.write_bytes((tmp_path / "plan.hot.npz").read_bytes())
    with pytest.raises(
        FormatError, match=r"plan.warm.npz: expected SHA-256 .* not the file that was written"
    ):
        read_plan(tmp_path / "plan.toml")
    file.unlink()
    with pytest.raises(FormatError, match=r"plan.warm.npz: ids of rows cannot be read: No such file"):
        read_plan(tmp_path / "plan.toml")


def test_ids_that_the_plan_does_not_count_are_not_written(tmp_path):
    with pytest.raises(FormatError, match="expected ids of hot rows"):
        write_plan(tmp_path / "plan.toml", PLAN, {"user": np.array([1])}, WARM)
    with pytest.raises(FormatError, match=r"expected ids of warm rows \{'user': 4\}, got \{\}"):
        write_plan(tmp_path / "plan.toml", PLAN, HOT, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["hot", "warm"])
@pytest.mark.parametrize(
    ("count", "file", "message"),
    [
        (1, "", "KIND_rows: expected where a table has KIND rows, and only there, got None"),
        (
            0,
            'KIND_rows = "x.npz"',
            "KIND_rows: expected where a table has KIND rows, and only there, got 'x.npz'",
        ),
        (1, 'KIND_rows = "x.npz"', "KIND_rows_sha256: required beside KIND_rows, but not given"),
    ],
)
def test_rows_and_their_file_come_together(tmp_path, kind, count, file, message):
    path = tmp_path / "plan.toml"
    table = f'[tables.t]\nrows=10\nsharding="row"\ncold=true\n{kind}={count}'
    path.write_text(f"ranks=2\nbatch=4\ndim=8\n{file.replace('KIND', kind)}\n{table}")
    with pytest.raises(ConfigError, match=message.replace("KIND", kind)):
        read_plan(path)
