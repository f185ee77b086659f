"""``laconic plan`` from a cluster and a profile to a plan file, and its ways out."""

from __future__ import annotations

import ctypes
import json

import pytest
import scipy.optimize
from typer.testing import CliRunner

from laconic.cli import app
from laconic.cli.plan import _codings
from laconic.config import load
from laconic.cost.workload import RowCoding
from laconic.data import open_source
from laconic.errors import ConfigError, FormatError, LaconicError
from laconic.plan.access.access_file import read_access
from laconic.plan.plan_file import read_plan
from laconic.train import planning
from laconic.train.placement import PlanCheck, make_placement
from laconic.train.ranks import Ranks
from laconic.train.run import run
from laconic.train.settings import RunSettings
from laconic.train.trainer import Trainer

EXACT = ("--set", "compression.rows=exact", "--set", "compression.gradients=exact")

RUN = """
[data]
kind = "synthetic"
rows = [50, 2000, 5]
dense = 2
samples = 4096
eval_samples = 64
[model]
dim = 8
bottom = [8]
top = [8]
[train]
batch = 32
"""
CLUSTER = "devices.count = 2\ndevices.memory_gb = 1\ndevices.mbps = 10\ndevices.step_ms = 1\n"
TUNED = {
    "kind": "tune",
    "title": "run.toml",
    **{"ranks": 2, "steps": 8, "loss": 0.5, "slope": 0.1, "budget": 0.001, "lower_bound": 1.0},
}


def direction(bound, exact, sent):
    chosen = {"bound": bound, "bytes_sent": sent, "harm": 0.0, "reason": "because"}
    measured = {"bounds": [0.1], "offered": [True], "bytes_sent": [sent], "error": [0.0], "harm": [0.0]}
    return {**measured, "bytes_exact": exact, "sensitivity": 0.0, "sensitivity_se": 0.0, "chosen": chosen}


def plan(folder, *arguments):
    """Run the command in this process, with file names relative to a folder."""
    names = [
        str(folder / a) if str(a).endswith((".toml", ".json", ".parquet")) else str(a) for a in arguments
    ]
    done = CliRunner().invoke(app, ["plan", str(folder / "cluster.toml"), *names])
    if isinstance(done.exception, LaconicError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """A folder with settings of a run and its profile."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("plan")
    (folder / "run.toml").write_text(RUN)
    (folder / "cluster.toml").write_text(CLUSTER)
    done = CliRunner().invoke(
        app, ["profile", str(folder / "run.toml"), "--out", str(folder / "access.parquet")]
    )
    assert done.exit_code == 0, done.output
    return folder


def test_a_profile_becomes_a_plan_with_hot_rows(profiled):
    given = ("--profile", "access.parquet", "--run", "run.toml", *EXACT)
    given += ("--hot-every", 50, "--overlap", 0)
    done = plan(profiled, *given, "--compare", "--out", "hot.toml", "--json", "hot.json")
    written, hot_ids, _ = read_plan(profiled / "hot.toml")
    assert (written.ranks, written.batch, written.dim, written.hot.every) == (2, 32, 8, 50)
    assert {name: table.rows for name, table in written.tables.items()} == {"c0": 50, "c1": 2000, "c2": 5}
    assert written.tables["c1"].hot > 0
    access = read_access(profiled / "access.parquet")
    assert set(hot_ids["c1"]) == set(access.table("c1").ids_H[: written.tables["c1"].hot])
    result = json.loads((profiled / "hot.json").read_text())
    assert result["kind"] == "plan"
    assert result["plan"] == written.model_dump(mode="json")
    assert result["step_ms"] == written.predicted.step_ms >= result["bound_ms"] * (1 - 1e-6)
    assert [row["name"] for row in result["baselines"]] == [
        "table",
        "row",
        "replicated",
        "threshold",
        "per_table",
    ]
    assert all(row["step_ms"] >= 0.999 * result["step_ms"] for row in result["baselines"])
    for words in ("next best", "bottleneck: ", "no plan takes less than", "per_table", "--plan"):
        assert words in done.output


def test_without_a_profile_zipf_is_assumed_and_no_row_is_hot(profiled):
    plan(profiled, "--run", "run.toml", "--set", "train.batch=64", "--zipf", 1.2, "--out", "zipf.toml")
    written, hot_ids, _ = read_plan(profiled / "zipf.toml")
    assert written.batch == 64
    assert hot_ids == {}
    assert written.predicted.dense_bytes > 0


def test_a_table_larger_than_memory_keeps_its_frequent_rows_and_trains_as_one_in_memory(profiled, tmp_path):
    """Tables of 74 kB in 20 kB of memory."""
    disk = 'devices.tiers = [{name = "disk", memory_gb = 1, mbps = 80}]'
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(f"devices.count = 1\ndevices.memory_gb = 0.00002\ndevices.mbps = 10\n{disk}\n")
    for name in ("access.parquet", "run.toml"):
        (tmp_path / name).symlink_to(profiled / name)
    given = ("--profile", "access.parquet", "--run", "run.toml", "--out", "plan.toml", "--json", "plan.json")
    done = plan(tmp_path, *given)
    written, hot, warm = read_plan(tmp_path / "plan.toml")
    table = written.tables["c1"]
    assert (table.cold, table.hot, hot) == (True, 0, {})
    assert 300 < table.warm < 556
    access = read_access(tmp_path / "access.parquet").table("c1")
    assert warm["c1"].tolist() == sorted(access.ids_H[: table.warm].tolist())
    assert 18_000 < written.embeddings_memory.ram_N[0] <= 20_000
    assert f"memory has the {table.warm} most frequent rows" in table.why
    assert "c1: of 2,000 rows in files, memory has the" in " ".join(done.output.split())
    shown = json.loads((tmp_path / "plan.json").read_text())["tables"][1]
    assert shown["place"] == f"by rows, in files, {table.warm} warm"
    assert shown["file_bytes"] > 0
    assert shown["kept"] == pytest.approx(access.counts_H[: table.warm].sum() / access.lookups)
    results = []
    for name, file in (("memory", None), ("files", tmp_path / "plan.toml")):
        short = (f"train.out={tmp_path}/{name}", "train.steps=20")
        settings = load(tmp_path / "run.toml", RunSettings, overrides=short)
        results.append(run(settings, resume=False, console=None, plan=file).evaluation)
    assert results[0] == results[1]


def test_json_goes_to_standard_output_alone(profiled):
    done = plan(profiled, "--profile", "access.parquet", "--out", "stdout.toml", "--json", "-")
    result = json.loads(done.stdout)
    assert [table["name"] for table in result["tables"]] == ["c0", "c1", "c2"]
    assert "bottleneck" in done.stderr


def test_what_the_solver_prints_is_not_on_standard_output(profiled, monkeypatch, capfd):
    """HiGHS prints from C++, below Python's standard output."""
    solve, libc = scipy.optimize.milp, ctypes.CDLL(None)

    def talks(*arguments, **options):
        libc.printf(b"of the solver\n")
        return solve(*arguments, **options)

    monkeypatch.setattr(scipy.optimize, "milp", talks)
    plan(profiled, "--profile", "access.parquet", "--out", "quiet.toml", "--json", "-")
    libc.fflush(None)
    assert capfd.readouterr().out == ""


def test_tuned_bounds_and_ratios_are_part_of_the_plan(profiled):
    tables = [
        {
            "name": name,
            "rows": rows,
            "paper_class": "small",
            "homogenization": [1.0],
            "forward": direction(0.1, 4000, 1000),
            "backward": direction(None, 4000, 4000),
        }
        for name, rows in (("c0", 50), ("c1", 2000))
    ]
    (profiled / "tune.json").write_text(json.dumps({**TUNED, "tables": tables}))
    given = ("--profile", "access.parquet", "--tuned", "tune.json", "--hot-every", 1, "--force")
    plan(profiled, *given, "--out", "tuned.toml")
    written, _, _ = read_plan(profiled / "tuned.toml")
    user = written.tables["c1"]
    assert (user.bound, user.gradient_bound, user.exact) == (0.1, None, "gradients")
    assert (written.tables["c2"].bound, written.tables["c2"].exact) == (None, False)
    if user.sharding != "replicated":
        assert user.predicted.backward == pytest.approx(4 * user.predicted.forward)
    tables[0]["name"] = "page"
    (profiled / "tune.json").write_text(json.dumps({**TUNED, "tables": tables}))
    with pytest.raises(ConfigError, match=r"--tuned: no table 'page' \(known: c0, c1, c2\)"):
        plan(profiled, *given, "--out", "tuned.toml")


class _Both:
    """Stands for two ranks, whose bytes a rehearsal counts together."""

    count = 2

    def gather(self, sent):
        return [sent / 2]


def deviation(folder, file, *overrides):
    """Return how far the bytes of an epoch are from a plan's, as ``laconic train --plan`` does."""
    settings = load(folder / "run.toml", RunSettings, overrides=overrides)
    source = open_source(settings.data)
    placement = make_placement(settings, source.schema, 2, file)
    rehearsed = Trainer(settings, source.schema, Ranks(0, 1, rehearsed=2), placement=placement)
    check = PlanCheck(placement.plan, rehearsed.rows.ledger, _Both())
    for samples in source.batches("train", global_batch=64, rank=0, ranks=1):
        rehearsed.step(samples)
    return check.after(64, rehearsed.rows.ledger, end=True)


@pytest.mark.parametrize(
    "overrides",
    [(), ("compression.rows=lossless", "compression.gradients=lossless", "compression.ids=false")],
    ids=["bounded", "lossless"],
)
def test_a_plan_for_a_run_predicts_what_its_codecs_send(profiled, overrides):
    words = [word for override in overrides for word in ("--set", override)]
    given = ("--profile", "access.parquet", "--run", "run.toml", *words, "--force", "--out", "coded.toml")
    done = plan(profiled, *given)
    assert "as in a short rehearsal of the run" in done.output
    found = deviation(profiled, profiled / "coded.toml", *overrides)
    assert not found.too_far, found.line()


def test_a_plan_that_takes_a_compressing_run_for_exact_is_found_out(profiled):
    given = ("--profile", "access.parquet", "--run", "run.toml", "--force", "--out", "coded.toml")
    plan(profiled, *given, "--forward-ratio", 1, "--backward-ratio", 1)
    assert deviation(profiled, profiled / "coded.toml").too_far


def test_a_ratio_that_is_given_counts_more_than_the_run():
    ratios = planning.Ratios({"user": (5.0, 9.0)}, "rehearsed", False)
    assert _codings((), 1.0, None, ratios)["user"] == (RowCoding(ratio=1.0), RowCoding(ratio=9.0))


def test_tables_larger_than_memory_are_planned_from_normal_values(profiled, monkeypatch):
    monkeypatch.setattr(planning, "free_memory_bytes", lambda: 1000)
    given = ("--profile", "access.parquet", "--run", "run.toml", "--force", "--out", "normal.toml")
    assert "its codecs were tried on normal values" in " ".join(plan(profiled, *given).output.split())


def test_measured_speeds_count(profiled):
    rows = [
        {"direction": name, "bytes_before": 1e6, "encode_ms": 100.0, "decode_ms": 50.0}
        for name in ("ids", "forward", "backward")
    ]
    (profiled / "train.json").write_text(json.dumps({"ledger": rows}))
    given = ("--profile", "access.parquet", "--forward-ratio", 4, "--backward-ratio", 4, "--force")
    plan(profiled, *given, "--out", "speed.toml")
    fast = read_plan(profiled / "speed.toml")[0].predicted.step_ms
    plan(profiled, *given, "--measured", "train.json", "--out", "speed.toml")
    assert read_plan(profiled / "speed.toml")[0].predicted.step_ms > fast
    (profiled / "train.json").write_text('{"ledger": [1]}')
    with pytest.raises(FormatError, match="expected what `laconic train --json` writes, got something else"):
        plan(profiled, *given, "--measured", "train.json", "--out", "speed.toml")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "plan: which tables\\? give --profile ACCESS.PARQUET, --run RUN.TOML, or both"),
        (("--profile", "access.parquet", "--set", "train.batch=1"), "--set: changes settings of a run"),
        (("--profile", "nothing.parquet"), "no such file; laconic profile writes it"),
        (
            ("--run", "run.toml", "--out", "cluster.toml"),
            "exists; choose another name, or replace it with --force",
        ),
        (("--run", "run.toml", "--out", "plan.txt"), "expected a file named"),
        (
            ("--profile", "access.parquet", "--run", "run.toml", "--set", "data.rows=[50,2001,5]"),
            "table 'c1' has 2000 rows there and 2001 in",
        ),
    ],
)
def test_bad_input_is_refused_with_a_remedy(profiled, options, message):
    with pytest.raises(ConfigError, match=message):
        plan(profiled, "--out", "refused.toml", *options)
    assert not (profiled / "refused.toml").exists()


def test_what_does_not_fit_says_so_and_writes_nothing(profiled, tmp_path):
    (tmp_path / "cluster.toml").write_text(
        "devices.count = 2\ndevices.memory_gb = 0.00001\ndevices.mbps = 10\n"
    )
    with pytest.raises(
        LaconicError, match=r"placement: table 'c1' needs 72 kB; .* short; raise memory_gb by"
    ):
        plan(tmp_path, "--run", profiled / "run.toml", "--out", "plan.toml")
    assert not (tmp_path / "plan.toml").exists()
