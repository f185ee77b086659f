"""Tables that memory cannot hold are refused before anything is allocated, with what to do about it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from laconic.cli import app
from laconic.errors import PlanError
from laconic.exchange import Table
from laconic.train import limits
from laconic.train.limits import check_memory
from laconic.train.placement import Placement
from laconic.train.run import run
from tests.train.small_runs import settings_of

GB = 10**9


@pytest.fixture
def far_ids(tmp_path):
    """Settings of a run on a table whose ids reach two billion."""
    draw = np.random.default_rng(0)
    ids = draw.integers(0, 50, 200)
    ids[7] = 2_000_000_000
    pq.write_table(pa.table({"label": ids % 2, "user": ids, "item": ids % 5}), tmp_path / "far.parquet")
    (tmp_path / "columns.toml").write_text(
        'label = "label"\n[[categorical]]\ncolumns = "user"\n[[categorical]]\ncolumns = "item"\n'
    )
    data = f'data={{kind="parquet", path="{tmp_path}/far.parquet", columns="{tmp_path}/columns.toml"}}'
    return settings_of(data, "embeddings.replicate_below=0", f"train.out={tmp_path}/run")


def test_ids_near_two_billion_are_refused_with_the_memory_that_they_take(far_ids, monkeypatch):
    monkeypatch.setattr(limits, "free_memory_bytes", lambda: 22 * GB)
    with pytest.raises(PlanError) as caught:
        run(far_ids, resume=False, console=None)
    assert str(caught.value) == (
        "embeddings: table 'user' has 2,000,000,002 rows and needs 40.0 GB; all tables of this machine's ranks need 40.0 GB, "
        "and 22.0 GB are free; hash its ids (buckets = 1000000 for its column in the columns file), make them dense with "
        "laconic prepare, lower model.dim, start more machines, or let laconic plan keep tables in files"
    )


def test_a_profile_counts_such_ids_without_a_place_for_each(far_ids, tmp_path):
    words = ["profile", str(far_ids.data.path), "--columns", str(far_ids.data.columns)]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "access.parquet")])
    assert done.exit_code == 0, done.output
    assert "2,000,000,002" in done.output


def test_generated_tables_are_made_smaller_by_settings(monkeypatch):
    monkeypatch.setattr(limits, "free_memory_bytes", lambda: 1000)
    with pytest.raises(
        PlanError, match=r"needs 20\.0 kB; .*; lower data\.rows or data\.cap, lower model\.dim"
    ):
        check_memory(settings_of(), _placed(Table(name="c3", rows=1000)), _Ranks())


class _Ranks:
    """One of two ranks; the other is like it."""

    def __init__(self, machines=("here",)):
        self.rank, self.count, self._machines = 0, len(machines), machines

    def gather(self, value):
        return [(machine, *value[1:]) for machine in self._machines]


def _placed(*tables):
    return Placement(tables)


@pytest.mark.parametrize(
    ("machines", "fits"), [(("here",), True), (("here", "here"), False), (("here", "there"), True)]
)
def test_ranks_of_one_machine_share_its_memory(monkeypatch, machines, fits):
    """A replicated table of 20 kB a rank, where 30 kB are free."""
    monkeypatch.setattr(limits, "free_memory_bytes", lambda: 30_000)
    placement = _placed(Table(name="c", rows=1000, sharding="replicated"))
    if fits:
        check_memory(settings_of(), placement, _Ranks(machines))
    else:
        with pytest.raises(PlanError, match=r"need 40\.0 kB, and 30\.0 kB are free"):
            check_memory(settings_of(), placement, _Ranks(machines))


@pytest.mark.parametrize("free", [None, 20_000])
def test_what_fits_or_is_not_known_or_is_in_files_is_not_refused(monkeypatch, free):
    monkeypatch.setattr(limits, "free_memory_bytes", lambda: free)
    tables = (
        Table(name="a", rows=1000),
        Table(name="b", rows=10**9, sharding="table", cold=True),
    )
    check_memory(settings_of(), _placed(*tables), _Ranks())
