"""A plan says where tables live; the model is the same, and a run goes on under another plan."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from laconic.config import parse
from laconic.cost.load import PredictedBytes
from laconic.errors import ConfigError, PlanError
from laconic.exchange.exchange_plan import TableCodecs
from laconic.plan.plan_file import HotSettings, PlacementPlan, TablePlan, write_plan
from laconic.train.checkpoint import newest_checkpoint
from laconic.train.placement import make_placement, planned_compression
from laconic.train.run import run
from laconic.train.settings import RunSettings
from tests.distributed.training import start, train, write_settings
from tests.train.small_runs import SETTINGS, source_of
from tests.train.test_checkpoint import assert_equal, whole_tables

ROWS = {"c0": 200, "c1": 50, "c2": 7, "c3": 1000}
HOT = {"c0": [0, 1, 2, 3, 199], "c3": list(range(0, 900, 7))}
WARM = {"c0": [10, 11, 13, 198], "c1": range(40)}


def plan_of(
    folder,
    *,
    ranks=2,
    hot=None,
    warm=None,
    name="plan",
    dim=4,
    rows=None,
    every=1,
    look_ahead=False,
    **tables,
):
    """Write a plan; tables that are not named are spread by rows."""
    folder.mkdir(exist_ok=True)
    hot = {table: np.array(ids, np.int64) for table, ids in (hot or {}).items()}
    warm = {table: np.array(ids, np.int64) for table, ids in (warm or {}).items()}
    planned = {}
    for table, count in (rows or ROWS).items():
        said = {"sharding": "row", "hot": len(hot.get(table, ())), "warm": len(warm.get(table, ()))}
        said |= {"cold": table in warm, **tables.get(table, {})}
        planned[table] = TablePlan(rows=count, **said)
    path = folder / f"{name}.toml"
    plan = PlacementPlan(
        ranks=ranks,
        batch=16,
        dim=dim,
        tables=planned,
        hot=HotSettings(every=every),
        look_ahead=look_ahead,
    )
    write_plan(path, plan, hot, warm)
    return path


def newest(folder):
    return whole_tables(newest_checkpoint(folder / "checkpoints"))


def test_a_run_goes_on_under_other_plans_and_trains_the_same_model(tmp_path):
    """Row, table, replicated, hot, cold, warm, early: exact communication gives the bits of a run without a plan."""
    plans = [
        plan_of(tmp_path, name="first", c0={"sharding": "table", "owner": 1}, c2={"sharding": "replicated"}),
        plan_of(
            tmp_path,
            name="second",
            hot=HOT,
            warm=WARM,
            look_ahead=True,
            c1={"sharding": "table"},
            c3={"cold": True},
        ),
        plan_of(
            tmp_path,
            name="third",
            hot={"c1": range(50), "c3": [5]},
            warm={"c0": range(0, 200, 3), "c3": range(500, 1000, 2)},
            c0={"sharding": "replicated"},
        ),
    ]
    exact = ("--set", "compression.rows=exact", "--set", "compression.gradients=exact")
    plain, planned = (str(write_settings(tmp_path, samples=300, name=name)) for name in ("plain", "planned"))
    train(2, tmp_path / "a", plain, *exact)
    for steps, plan in zip((3, 6, 1000), plans, strict=True):
        limits = ("--set", f"train.steps={steps}", "--set", "train.epochs=1")
        end = (*limits, "--resume", "--plan", str(plan))
        train(2, tmp_path / f"b{steps}", planned, *exact, *end)
    assert_equal(newest(tmp_path / "plain"), newest(tmp_path / "planned"))


def test_a_resumed_run_with_copies_that_differ_is_the_uninterrupted_one(tmp_path):
    """Copies are synchronized every 4 steps, and before evaluations, every 7, and checkpoints, every 5."""
    plan = ("--plan", str(plan_of(tmp_path, hot=HOT, every=4)))
    straight, parts = (str(write_settings(tmp_path, samples=300, name=name)) for name in ("one", "two"))
    train(2, tmp_path / "a", straight, *plan)
    train(2, tmp_path / "b", parts, *plan, "--set", "train.steps=5")
    train(2, tmp_path / "c", parts, *plan, "--resume")
    assert_equal(newest(tmp_path / "one"), newest(tmp_path / "two"))


def test_ranks_with_other_plans_all_raise(tmp_path):
    settings = str(write_settings(tmp_path, samples=100))
    plans = [plan_of(tmp_path / "a"), plan_of(tmp_path / "b", c0={"sharding": "table"})]
    one_name = tmp_path / "plan.toml"
    words = {rank: ("--plan", str(one_name)) for rank in range(2)}
    for rank in start(2, tmp_path, [settings], only=words, sabotage=_OwnPlan(one_name, plans)):
        assert rank.wait() == 1
        assert rank.errors == [
            "laconic: plan.tables.c0.sharding: rank 0 has 'row', rank 1 has 'table'; all ranks need the same "
            "settings, and one folder that they share"
        ]


class _OwnPlan:
    """Let every rank read a file of its own where all say the same name."""

    def __init__(self, name, plans):
        self.name, self.plans = name, plans

    def __call__(self, rank):
        from laconic.train import placement

        read = placement.read_plan
        placement.read_plan = lambda path: read(self.plans[rank])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ranks": 3}, r"^plan: made for 3 ranks, got 2"),
        ({"dim": 8}, r"^plan: made for embeddings of 8 dimensions, got 4"),
        ({"rows": {**ROWS, "c3": 999}}, r"^plan: table 'c3' has 999 rows, that of the run 1000"),
    ],
)
def test_a_plan_for_another_run_is_refused(tmp_path, change, message):
    settings = parse(SETTINGS, RunSettings)
    with pytest.raises(PlanError, match=message):
        make_placement(settings, source_of(settings).schema, 2, plan_of(tmp_path, **change))


def test_bounds_of_a_plan_are_those_of_its_tables(tmp_path):
    settings = parse(SETTINGS, RunSettings)
    plan = plan_of(tmp_path, c0={"bound": 0.02}, c1={"gradient_bound": 0.2}, c2={"exact": "gradients"})
    placement = make_placement(settings, source_of(settings).schema, 2, plan)
    usual = settings.compression
    planned = planned_compression(usual, placement)
    rows, gradients = usual.rows.codec(), usual.gradients.codec()
    assert planned.compression().policy(["c0", "c1", "c2", "c3"]).plan.tables == (
        TableCodecs(replace(rows, bound=0.02), gradients, ("backward",)),
        TableCodecs(rows, replace(gradients, bound=0.2), ("forward",)),
        TableCodecs(rows, None, ("forward",)),
        TableCodecs(rows, gradients, ("forward", "backward")),
    )
    with pytest.raises(
        ConfigError, match=r"^--plan: the plan has bounds of single tables, and so has compression\.tables"
    ):
        planned_compression(planned, placement)
    exact = parse(SETTINGS, RunSettings, ("compression.rows=exact",)).compression
    with pytest.raises(
        ConfigError, match=r"^--plan: table 'c0' has a bound of 0\.02, but the run sends 'exact'; plan again"
    ):
        planned_compression(exact, placement)


def test_one_rank_trains_with_a_plan_that_has_hot_rows(tmp_path):
    settings = parse(
        SETTINGS,
        RunSettings,
        overrides=(
            f"train.out={tmp_path}/run",
            "train.steps=3",
            "compression.rows=exact",
            "compression.gradients=exact",
        ),
    )
    plain = run(settings, resume=False, console=None)
    other = settings.model_copy(update={"train": settings.train.model_copy(update={"out": tmp_path / "hot"})})
    hot = run(other, resume=False, console=None, plan=plan_of(tmp_path, ranks=1, hot=HOT))
    assert hot.evaluation == plain.evaluation


def entries_of(folder, kind):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]


def test_a_plan_that_fits_is_not_complained_of_and_one_that_does_not_is(tmp_path):
    """The prediction is what a first run of the same plan sent."""
    words = (str(write_settings(tmp_path, samples=300, name="first")), "--set", "train.checkpoint_every=0")
    blind = plan_of(tmp_path, name="blind", hot=HOT)
    files = [tmp_path / f"{rank}.json" for rank in range(2)]
    train(2, tmp_path / "a", *words, "--plan", str(blind), "--json", str(files[0]))
    assert entries_of(tmp_path / "first", "plan") == []
    sent: dict[str, dict[str, float]] = {name: {} for name in ROWS}
    for row in json.loads(files[0].read_text())["tables"]:
        name, hot, _ = row["table"].partition(" (hot)")
        key = "hot" if hot else row["direction"]
        sent[name][key] = sent[name].get(key, 0) + row["after"] / 10
    for name, factor in (("fits", 1.0), ("changed", 10.0)):
        tables = {table: {"predicted": PredictedBytes(**sizes)} for table, sizes in sent.items()}
        tables["c3"] = {
            "predicted": PredictedBytes(**{**sent["c3"], "forward": factor * sent["c3"]["forward"]})
        }
        plan = plan_of(tmp_path, name=name, hot=HOT, **tables)
        settings = str(write_settings(tmp_path, samples=300, name=f"run-{name}"))
        train(2, tmp_path / name, settings, "--set", "train.checkpoint_every=0", "--plan", str(plan))
        (entry,) = entries_of(tmp_path / f"run-{name}", "plan")
        printed = (tmp_path / name / "out-0").read_text()
        assert entry["step"] == entry["steps"] == 10
        assert entry["too_far"] == (name == "changed") == ("plan: over the last 10 steps" in printed)
    assert (entry["table"], entry["direction"]) == ("c3", "forward")
    assert "most of it in table 'c3', forward: " in printed
    assert "laconic profile, then laconic plan" in printed
