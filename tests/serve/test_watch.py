"""Drift that is injected into live traffic: noticed in time, and blamed on the right part."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time

import numpy as np
import pytest
import torch

from laconic.data import Categorical, Samples, Schema
from laconic.lookups import Lookups
from laconic.quantize.formats import read_artifact, write_artifact
from laconic.quantize.search.run import population_of
from laconic.serve.metrics import Metrics
from laconic.serve.query import Query
from laconic.serve.refusal import Refusal
from laconic.serve.settings import Watching
from laconic.serve.watch.input_drift import Bins, InputDrift, chance, psi
from laconic.serve.watch.labels import Outcomes
from laconic.serve.watch.score_drift import ScoreDrift, limited, score_figures
from laconic.serve.watch.watch import Alerts, Watch
from tests.serve.served import PATIENCE_S, ROWS, Question, damage, load_from, running

NOTICED_WITHIN = 2000


def send(server, rng, requests, **shift):
    for _ in range(requests):
        status, answer, _ = server.infer(Question.draw(rng, 4, shift).body())
        assert status == 200, answer


def send_until_alert(server, rng, figures, **shift):
    """Send until one of these figures has an alert; return the report and its requests."""
    before = server.watch()["requests"]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        send(server, rng, 20, **shift)
        report = server.watch()
        if any(alert["figure"] in figures for alert in report["alerts"]):
            return report, report["requests"] - before
        assert time.monotonic() < deadline, report


def test_shifted_ids_are_noticed_and_their_table_named(artifact):
    rng = np.random.default_rng(1)
    with running(load_from(artifact), watch={"reference": 200, "window": 128}) as server:
        send(server, rng, 120)
        assert server.watch()["alerts"] == []
        report, requests = send_until_alert(server, rng, {"psi"}, shop=250)
        assert requests <= NOTICED_WITHIN
        assert {alert["part"] for alert in report["alerts"]} == {"shop"}
        assert report["findings"] == []  # fp32 knows the new ids no better
        assert (
            'laconic_watch_alerts_total{figure="psi",part="shop"} 1.0'
            in server.ask("GET", "/metrics")[1].decode()
        )


def test_unknown_ids_are_noticed(artifact):
    rng = np.random.default_rng(2)
    with running(load_from(artifact), watch={"reference": 200, "window": 128}) as server:
        send(server, rng, 100)
        deadline = time.monotonic() + PATIENCE_S
        alerts: set[tuple[str, str]] = set()
        while ("unknown", "user") not in alerts:
            question = Question.draw(rng, 4)
            question.ids["user"][:2] = 10**9
            server.infer(question.body())
            alerts = {(alert["figure"], alert["part"]) for alert in server.watch()["alerts"]}
            assert time.monotonic() < deadline
        assert {part for _, part in alerts} == {"user"}


@pytest.mark.parametrize("table", ["item", "tags"])
def test_a_table_whose_rows_are_damaged_is_noticed_named_and_replaced(artifact, table):
    engine = load_from(artifact)()
    rng = np.random.default_rng(3)
    probe = Question.draw(rng, 64)
    exact = engine.shadow().score(probe.dense_BF, probe.lookups())
    with running(lambda: engine, watch={"share": 0.8, "window": 96}) as server:
        deadline = time.monotonic() + PATIENCE_S
        while (report := server.watch())["sampled"] < 100:
            send(server, rng, 20)
            assert time.monotonic() < deadline
        assert report["alerts"] == []
        assert report["scores"]["harm"] < 1e-3
        damage(engine, table, rng)
        report, requests = send_until_alert(server, rng, {"harm", "difference", "calibration"})
        assert requests <= NOTICED_WITHIN
        deadline = time.monotonic() + PATIENCE_S
        while not report["findings"]:
            report = server.watch()
            assert time.monotonic() < deadline
        [finding] = report["findings"]
        assert (finding["part"], finding["switched"]) == (table, True)
        assert finding["harm_after"] < finding["harm_before"] / 10
        assert table not in report["lowered"]
        scores = np.array(server.infer(probe.body())[1]["outputs"][0]["data"])
        assert np.abs(scores - exact).mean() < 0.01
        metrics = server.ask("GET", "/metrics")[1].decode()
        assert f'laconic_watch_switches_total{{part="{table}"}} 1.0' in metrics
        while server.watch()["active"]:  # until a window of the new model is full
            send(server, rng, 20)
            assert time.monotonic() < deadline


def test_without_leave_to_switch_the_culprit_is_only_named(artifact):
    engine = load_from(artifact)()
    rng = np.random.default_rng(4)
    damage(engine, "shop", rng)
    with running(lambda: engine, watch={"share": 1.0, "switching": False}) as server:
        deadline = time.monotonic() + PATIENCE_S
        while not (report := server.watch())["findings"]:
            assert time.monotonic() < deadline
            send(server, rng, 10)
        assert [(finding["part"], finding["switched"]) for finding in report["findings"]] == [("shop", False)]
        assert "shop" in report["lowered"]


def test_labels_find_their_requests_and_are_judged(artifact):
    rng = np.random.default_rng(5)
    with running(load_from(artifact), watch={"labels": 100, "share": 1.0}) as server:
        labels = []
        for number in range(60):
            answer = server.infer(Question.draw(rng, 2).body(f"request {number}"))[1]
            chances = answer["outputs"][0]["data"]
            labels.append({"id": f"request {number}", "label": [int(rng.random() < p) for p in chances]})
        labels.append({"id": "nobody's", "label": 1})
        status, answer, _ = server.ask("POST", "/v2/models/model/labels", {"labels": labels})
        assert (status, answer) == (200, {"matched": 60, "unknown": 1})
        outcomes = server.watch()["outcomes"]
        assert outcomes["samples"] == 100
        assert 0.5 < outcomes["entropy"] == outcomes["reference"] < 1.5
        for wrong in (
            {}, {"labels": 3}, {"labels": [{"id": "x"}]}, {"labels": [{"id": 3, "label": 1}]},
            {"labels": [{"id": "x", "label": [2]}]}, {"labels": [], "more": 1},
        ):  # fmt: skip
            assert server.ask("POST", "/v2/models/model/labels", wrong)[0] == 400
        server.infer(Question.draw(rng, 2).body("again"))
        text = "labels: 'again': expected 2 labels, got 3"
        wrong = {"labels": [{"id": "again", "label": [1, 1, 1]}]}
        assert server.ask("POST", "/v2/models/model/labels", wrong)[:2] == (400, {"error": text})


def overflowing(samples):
    """Return one sample many times: its dense features are finite, its score is not."""
    one = Question.draw(np.random.default_rng(0), 1)
    ids = {name: np.tile(ids_L, samples) for name, ids_L in one.ids.items()}
    dense_BF = np.full((samples, one.dense_BF.shape[1]), 3e38, np.float32)
    return Question(dense_BF, ids, np.tile(one.lengths_B, samples)).body()


def test_after_scores_that_are_no_numbers_real_harm_still_switches(artifact):
    engine = load_from(artifact)()
    rng = np.random.default_rng(12)
    with running(lambda: engine, watch={"share": 1.0, "window": 128}) as server:
        deadline = time.monotonic() + PATIENCE_S
        while (server.watch()["scores"] or {"samples": 0})["samples"] < 128:
            send(server, rng, 10)
            assert time.monotonic() < deadline
        assert server.infer(overflowing(1))[0] == 400
        assert server.infer(overflowing(300))[0] == 400  # more than a window
        while (report := server.watch())["not_finite"]["shadow"] < 301:
            assert time.monotonic() < deadline, report
        assert report["not_finite"]["live"] == 301
        assert report["scores"]["samples"] >= 128  # they have taken nobody's place in the window
        assert report["scores"]["harm"] < 1e-3
        assert report["alerts"] == []
        assert b"laconic_watch_not_finite_total 301.0" in server.ask("GET", "/metrics")[1]
        damage(engine, "item", rng)
        while not (report := server.watch())["findings"]:
            send(server, rng, 10)
            assert server.infer(overflowing(100))[0] == 400
            assert time.monotonic() < deadline, report
        [finding] = report["findings"]
        assert (finding["part"], finding["switched"]) == ("item", True)
        assert "item" not in report["lowered"]


def looked_at(watch, rng, live):
    """Show one request with these scores to a watch whose thread has ended, and let it look."""
    question = Question.draw(rng, 64)
    ones_B = np.ones(64, np.int64)
    lengths_TB = np.stack([question.lengths_B if name == "tags" else ones_B for name in ROWS])
    ids_L = np.concatenate([question.ids[name] for name in ROWS])
    query = Query(question.dense_BF, ids_L, lengths_TB.astype(np.int64), np.zeros(len(ROWS), np.int64))
    watch.observe("request", query, live(*query.features()))
    watch._look(watch._next())


def test_an_alert_that_led_to_nothing_does_not_hide_later_harm(artifact):
    """Scores that are wrong once raise an alert; the model itself goes wrong while it lasts."""
    engine = load_from(artifact)()
    rng, switched = np.random.default_rng(13), []
    settings = Watching(share=1.0, window=64, least=64, difference=10, calibration=1e9)  # harm alone counts
    watch = Watch(engine, settings, Metrics(), switched.append)
    asyncio.run(watch.closed())
    for _ in range(2):
        looked_at(watch, rng, lambda dense_BF, _lookups: np.full(len(dense_BF), 0.999, np.float32))
    assert [alert["figure"] for alert in watch.report()["active"]] == ["harm"]
    assert not switched
    damage(engine, "item", rng)
    for _ in range(2):
        looked_at(watch, rng, engine.score)
    [better] = switched
    assert "item" not in better.lowered


def test_the_shadow_of_one_request_is_not_taken_for_that_of_another_of_the_same_id():
    outcomes = Outcomes(remembered=1000, window=100)
    first = outcomes.remember("again", np.full(100, 0.9, np.float32))
    outcomes.remember("again", np.full(100, 0.1, np.float32))
    outcomes.add_shadow(first, np.full(100, 0.9, np.float32))
    outcomes.label([("again", (np.arange(100) < 10).astype(np.float32))])
    assert math.isnan(outcomes.figures().gap)


def test_a_shadow_that_is_no_number_is_left_out_of_the_gap():
    outcomes = Outcomes(remembered=1000, window=200)
    shadow_B = np.where(np.arange(200) < 100, np.nan, 0.1).astype(np.float32)
    figures = outcomes_of(np.full(200, 0.1), shadow_B, np.arange(200) % 10 == 0, outcomes)
    assert figures.gap == 0


def test_labels_are_taken_together_or_not_at_all():
    outcomes = Outcomes(remembered=10, window=100)
    for name in ("one", "two"):
        outcomes.remember(name, np.full(2, 0.5, np.float32))
    labels = [("one", np.ones(2, np.float32)), ("two", np.ones(3, np.float32))]
    with pytest.raises(Refusal, match="labels: 'two': expected 2 labels, got 3"):
        outcomes.label(labels)
    assert outcomes.label(labels[:1]) == {"matched": 1, "unknown": 0}
    assert outcomes.label(labels[:1] * 2) == {"matched": 0, "unknown": 2}


def outcomes_of(scores, shadow, labels, outcomes):
    scored = outcomes.remember("all", scores.astype(np.float32))
    outcomes.add_shadow(scored, shadow.astype(np.float32))
    outcomes.label([("all", labels.astype(np.float32))])
    return outcomes.figures()


def test_labels_tell_a_changed_world_from_harm_by_precision():
    rng = np.random.default_rng(6)
    n = 4000
    p = rng.beta(1, 3, n)
    labels = rng.random(n) < p
    outcomes = Outcomes(remembered=10_000, window=n)
    assert outcomes_of(p, p, labels, outcomes).sure_increase < 0
    world = outcomes_of(p, p, rng.random(n) < rng.permutation(p), outcomes)
    assert world.sure_increase > 0.02
    assert world.gap == 0
    noisy = 1 / (1 + np.exp(-(np.log(p / (1 - p)) + rng.normal(0, 1.5, n))))
    precision = outcomes_of(noisy, p, labels, outcomes)
    assert precision.sure_gap > 0.02
    assert precision.sure_increase > 0.02


def test_remembered_scores_are_bounded_and_the_oldest_leave():
    outcomes = Outcomes(remembered=10, window=100)
    for number in range(8):
        outcomes.remember(str(number), np.full(3, 0.5, np.float32))
    ones = np.ones(3, np.float32)
    assert outcomes.label([(str(number), ones) for number in range(8)]) == {"matched": 3, "unknown": 5}


def test_harm_is_the_loss_that_labels_would_show():
    """With labels drawn from the shadow, cross entropy exceeds the shadow's by the divergence."""
    rng = np.random.default_rng(7)
    s = rng.beta(1, 3, 200_000).astype(np.float32)
    p = np.clip(s + rng.normal(0, 0.05, s.size), 0.01, 0.99).astype(np.float32)
    labels = rng.random(s.size) < s

    def loss(x):
        return -np.where(labels, np.log(np.maximum(x, 1e-6)), np.log(np.maximum(1 - x, 1e-6))).mean()

    rate = s.mean()
    entropy = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    expected = (loss(p) - loss(s)) / entropy
    deviation = (
        3 * np.std(np.where(labels, np.log(s / p), np.log((1 - s) / (1 - p)))) / np.sqrt(s.size) / entropy
    )
    assert abs(score_figures(p, s).harm - expected) < deviation


def test_a_score_that_is_no_number_counts_as_wrong():
    figures = score_figures(np.array([np.nan, 0.5], np.float32), np.array([0.1, 0.5], np.float32))
    assert figures.difference > 0.4
    assert all(value > limit for _, value, limit in limited(figures, Watching(), None))


def test_the_window_of_scores_slides():
    drift = ScoreDrift(100)
    assert drift.figures() is None
    for _ in range(10):
        drift.add(np.full(30, 0.9, np.float32), np.full(30, 0.1, np.float32))
    for _ in range(4):
        drift.add(np.full(30, 0.1, np.float32), np.full(30, 0.1, np.float32))
    figures = drift.figures()
    assert (figures.samples, figures.difference) == (120, 0)


def test_an_alert_is_raised_once_until_it_is_over():
    alerts = Alerts(Metrics())
    judged = [alerts.judge("psi", "shop", value, 0.2, 0) for value in (0.1, 0.3, 0.4, 0.1, 0.3, float("nan"))]
    assert judged == [False, True, False, False, True, False]
    assert len(alerts.report()["alerts"]) == 2
    assert len(alerts.report()["active"]) == 1


def test_a_figure_that_is_no_number_is_no_alert():
    alerts = Alerts(Metrics())
    assert [alerts.judge("harm", "model", value, 0.2, 0) for value in (math.nan, 0.3)] == [False, True]
    assert [alert["value"] for alert in alerts.report()["alerts"]] == [0.3]


def test_stability_without_drift_is_within_chance():
    """300 features at a time, windows of 200: none may be taken for drift."""
    rng = np.random.default_rng(8)
    for _ in range(300):
        bins = Bins.learnt(rng.integers(0, 50, 1000), 16)
        now = bins.count(rng.integers(0, 50, 200))
        assert psi(now, bins.reference_K) < chance(now, bins.reference_K)


def test_stability_sees_other_ranges_and_other_favorites():
    schema = load_schema()
    rng = np.random.default_rng(9)

    def query(favorite, low, high):
        ids = np.where(rng.random(1000) < 0.3, favorite, rng.integers(low, high, 1000))
        one = np.ones((1, 1000), np.int64)
        return Query(np.empty((1000, 0), np.float32), ids, one, np.zeros(1, np.int64))

    for change in ((7, 500, 1000), (8, 0, 1000)):
        drift = InputDrift(schema, reference=1000, window=1000)
        assert drift.add(query(7, 0, 1000)) is None
        same = drift.add(query(7, 0, 1000))["only"]
        assert same.psi < same.chance
        drift.add(query(*change))
        moved = drift.add(query(*change))["only"]
        assert moved.psi > 0.25 + moved.chance


def test_a_population_that_is_known_need_not_be_learnt():
    schema = Schema(("age",), (Categorical("only", 1000), Categorical("many", 50, bag=True)))
    rng = np.random.default_rng(10)

    def query():
        lengths_TB = np.stack([np.ones(800, np.int64), rng.integers(0, 4, 800)])
        ids_L = np.concatenate([rng.integers(0, 1000, 800), rng.integers(0, 50, lengths_TB[1].sum())])
        return Query(rng.normal(size=(800, 1)).astype(np.float32), ids_L, lengths_TB, np.array([0, 7]))

    learning = InputDrift(schema, reference=800, window=800)
    learning.add(query())
    known = InputDrift(schema, reference=800, window=800, population=learning.population())
    assert not known.learning
    assert known.population() == learning.population()
    asked = query()
    assert known.add(asked) == learning.add(asked)


def test_a_server_knows_the_population_of_its_artifact(artifact, tmp_path):
    made = read_artifact(artifact)
    rng = np.random.default_rng(11)
    tables = len(made.features.tables)
    ids_L = np.concatenate([rng.integers(0, table.rows, 200) for table in made.features.tables])
    offsets = torch.arange(200 * tables + 1)
    dense_BF = torch.zeros(200, len(made.features.dense))
    samples = Samples(torch.zeros(200), dense_BF, Lookups(torch.from_numpy(ids_L), offsets, tables))
    population = population_of(made.features, (samples,))
    write_artifact(tmp_path / "known", dataclasses.replace(made, population=population))
    assert read_artifact(tmp_path / "known").population == population
    with running(load_from(tmp_path / "known")) as server:
        assert server.watch()["state"] == "watching"


def load_schema():
    return Schema((), (Categorical("only", 1000),))


def test_what_finds_no_room_is_dropped_and_counted(artifact):
    with running(load_from(artifact), watch={"waiting": 4}) as server:
        rng = np.random.default_rng(0)
        assert server.infer(Question.draw(rng, 5).body())[0] == 200
        assert server.watch()["dropped"] == 1
        assert "laconic_watch_dropped_total 1.0" in server.ask("GET", "/metrics")[1].decode()
        assert sorted(server.watch()["lowered"]) == sorted([*ROWS, "top.0"])
