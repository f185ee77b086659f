"""Choices by measured costs: the cheapest, without flapping, the same everywhere, and the same again."""

from __future__ import annotations

import json
import pickle
import random

import pytest

from laconic.adapt.economy import CHOICES, DIRECTIONS, Decision, Economy, RankCosts, slowest
from laconic.cost.link import CodecCost, Link
from laconic.errors import ConfigError
from tests.cases import each

MS = 1e-3
FAST, SLOW = Link(1e-4, 1.25e9), Link(1e-4, 12.5e6)  # 10 Gbit/s and 100 Mbit/s


def offers(rows=1000.0, codec_ns=400.0):
    """A table of 256-byte rows: float16 takes a tenth of the codec's time, the codec sends an eighth."""
    exact, cast, bounded = 256 * rows, 128 * rows, 32 * rows
    cpu = codec_ns * 1e-9 * rows
    return (
        CodecCost(0.01 * cpu, 0.01 * cpu, exact),
        CodecCost(0.06 * cpu, 0.04 * cpu, cast),
        CodecCost(0.6 * cpu, 0.4 * cpu, bounded),
    )


def measured(link, tables):
    return RankCosts(link, tuple(tables), tuple(tables))


def names(tables):
    return tuple(f"c{t}" for t in range(tables))


def noisy(measurement, rng, share=0.05):
    """Every time off by up to the share; bytes are counted, not measured."""

    def off():
        return rng.uniform(1 - share, 1 + share)

    def costs(exact):
        return tuple(
            tuple(c and CodecCost(c.encode_s * off(), c.decode_s * off(), c.bytes_sent) for c in table)
            for table in exact
        )

    link = Link(measurement.link.latency_s * off(), measurement.link.bytes_per_s * off())
    return RankCosts(link, costs(measurement.forward), costs(measurement.backward))


def test_everything_is_bounded_until_the_first_review():
    assert Economy(names(2)).choice("forward") == ("bounded", "bounded")
    assert Economy(names(2), "exact").choice("backward") == ("exact", "exact")


@each("first", CHOICES)
@each(("bits_per_s", "choice"), [(100e6, "bounded"), (5e9, "cast"), (1000e9, "exact")])
def test_the_speed_of_the_link_decides(first, bits_per_s, choice):
    economy = Economy(names(2), first)
    economy.review(0, [measured(Link(1e-4, bits_per_s / 8), [offers(), offers(3000)])])
    for direction in DIRECTIONS:
        assert economy.choice(direction) == (choice, choice)


def test_directions_are_decided_each_by_its_own_costs():
    quick, slow = (offers(codec_ns=40),), (offers(codec_ns=40_000),)
    economy = Economy(names(1))
    economy.review(0, [RankCosts(SLOW, quick, slow)])
    assert economy.choice("forward") == ("bounded",)
    assert economy.choice("backward") == ("cast",)


def test_tables_are_decided_each_by_its_own_costs():
    economy = Economy(names(3))
    tables = [offers(codec_ns=40), offers(codec_ns=4e3), offers(codec_ns=4e6)]
    economy.review(0, [measured(Link(1e-4, 125e6), tables)])
    assert economy.choice("forward") == ("bounded", "cast", "exact")


def test_of_equal_times_the_fewest_bytes_win_and_gains_come_first():
    """Both codecs of c0 take a second where exact takes two; c1 gains more, and is decided first."""
    exact, cast, bounded = CodecCost(2, 0, 0), CodecCost(0.5, 0, 1), CodecCost(0, 0, 2)
    economy = Economy(names(2), "exact")
    made = economy.review(
        0, [measured(Link(0, 2), [(exact, cast, bounded), (CodecCost(9, 0, 0), cast, None)])]
    )
    forward = [(decision.table, decision.new) for decision in made if decision.direction == "forward"]
    assert forward == [("c1", "cast"), ("c0", "cast")]


def test_a_choice_that_is_not_offered_is_not_made():
    exact, _, bounded = offers()
    economy = Economy(names(1))
    economy.review(0, [measured(FAST, [(exact, None, bounded)])])
    assert economy.choice("forward") == ("exact",)


def test_a_decision_says_why():
    economy = Economy(names(1))
    first, _ = economy.review(40, [measured(Link(1e-4, 125e9), [offers()])])
    assert first == Decision(
        40,
        "forward",
        "c0",
        "bounded",
        "exact",
        "the link is faster than the codec: bounded takes 0.392 ms more than exact to encode and decode, "
        "and saves 0.00179 ms on the wire",
    )
    second, _ = economy.review(80, [measured(SLOW, [offers()])])
    assert (second.old, second.new) == ("exact", "bounded")
    assert second.reason == (
        "the codec is faster than the link: bounded takes 0.392 ms more than exact to encode and decode, "
        "and saves 17.9 ms on the wire"
    )


def test_the_summary_counts_what_is_not_compressed_and_says_why():
    economy = Economy(names(3))
    assert (
        economy.summary()
        == "forward: compression on for all 3 tables\nbackward: compression on for all 3 tables"
    )
    link = Link(1e-4, 125e6)
    forward = (offers(codec_ns=40), offers(codec_ns=4e6), offers(codec_ns=4e6))
    backward = (offers(codec_ns=40), offers(codec_ns=4e3), offers(codec_ns=4e6))
    economy.review(0, [RankCosts(link, forward, backward)])
    assert economy.summary() == (
        "forward: compression off for 2 of 3 tables: the link is faster than the codec\n"
        "backward: compression off for 1 of 3 tables: the link is faster than the codec; "
        "float16 for 1 of 3 tables: the link is faster than the codec"
    )


def changes_under_noise(seed):
    """Reviews of tables near the point where choices cost the same; returns the changes of each direction."""
    rng = random.Random(seed)
    tables = [offers(rng.uniform(100, 3000), rng.uniform(100, 900)) for _ in range(8)]
    link = Link(1e-4, 10 ** rng.uniform(8, 9.3))
    true = measured(link, tables)
    economy = Economy(names(8), rng.choice(CHOICES))
    log = [decision for step in range(60) for decision in economy.review(step, [noisy(true, rng)])]
    return [[decision for decision in log if decision.direction == direction] for direction in DIRECTIONS]


@each("seed", range(30))
def test_noise_of_5_percent_takes_no_table_back_and_forth(seed):
    for changes in changes_under_noise(seed):
        left = [(decision.table, decision.old) for decision in changes]
        assert not {(decision.table, decision.new) for decision in changes} & set(left), changes


@each("seed", range(10))
@each("factor", [10, 0.1])
def test_a_link_ten_times_as_fast_or_slow_is_noticed_within_two_reviews(seed, factor):
    rng = random.Random(seed)
    even = 96 / 360e-9  # bytes per second at which 96 bytes and 360 ns a row cost float16 and codec the same
    link = Link(1e-4, even / factor**0.5)
    tables = [offers(rng.uniform(100, 3000)) for _ in range(6)]
    before, after = measured(link, tables), measured(Link(1e-4, link.bytes_per_s * factor), tables)
    economy, settled = Economy(names(6)), Economy(names(6))
    for step in range(10):
        economy.review(step, [noisy(before, rng)])
    old = economy.choice("forward")
    for step in range(10, 12):
        economy.review(step, [noisy(after, rng)])
    settled.review(0, [after])
    assert economy.choice("forward") == settled.choice("forward") != old


def test_a_change_back_within_two_reviews_takes_twice_the_gain():
    """Exact costs 85 % of bounded, or the other way round: more than a tenth is saved, less than two."""
    cheap, dear = CodecCost(0, 0.85 * MS, 0), CodecCost(0, MS, 0)
    exact_pays, bounded_pays = measured(FAST, [(cheap, None, dear)]), measured(FAST, [(dear, None, cheap)])
    economy = Economy(names(1))
    choices = []
    for step, measurement in enumerate([exact_pays, bounded_pays, bounded_pays, bounded_pays]):
        economy.review(step, [measurement])
        choices += economy.choice("forward")
    assert choices == ["exact", "exact", "exact", "bounded"]
    half = CodecCost(0, 0.4 * MS, 0)
    economy.review(4, [measured(FAST, [(half, None, dear)])])
    assert economy.choice("forward") == ("exact",)


def test_one_slow_rank_decides_for_all_and_in_whatever_order_tables_are_the_same():
    ranks = [measured(FAST, [offers()] * 3) for _ in range(3)] + [measured(SLOW, [offers()] * 3)]
    economies = [Economy(names(3), "exact") for _ in ranks]
    decisions = [economy.review(0, pickle.loads(pickle.dumps(ranks))) for economy in economies]
    assert all(made == decisions[0] for made in decisions)
    assert {economy.choice("forward") for economy in economies} == {("bounded",) * 3}
    shuffled = Economy(names(3), "exact")
    assert shuffled.review(0, ranks[::-1]) == decisions[0]


def test_the_slowest_rank_is_as_slow_as_any_in_every_respect():
    one = RankCosts(Link(1, 10), ((CodecCost(1, 5, 8),) * 3,), ())
    two = RankCosts(Link(2, 20), ((CodecCost(2, 4, 6),) * 3,), ())
    assert slowest([one, two], "forward") == (10, ((CodecCost(2, 5, 8),) * 3,))


def test_a_restored_economy_continues_identically():
    rng = random.Random(3)
    runs = [
        [noisy(measured(Link(1e-4, 10 ** rng.uniform(6.5, 9.5)), [offers()] * 4), rng, 0.5)]
        for _ in range(20)
    ]
    economy, restored = Economy(names(4)), Economy(names(4), "exact")
    for step in range(10):
        economy.review(step, runs[step])
    restored.restore(json.loads(json.dumps(economy.state(), allow_nan=False)))
    assert restored.summary() == economy.summary()
    for step in range(10, 20):
        assert restored.review(step, runs[step]) == economy.review(step, runs[step])
    assert restored.state() == economy.state()


def test_the_state_of_another_model_is_refused():
    message = (
        r"^economy: expected the state of tables c0, got that of c0, c1; the checkpoint is of another model$"
    )
    with pytest.raises(ConfigError, match=message):
        Economy(names(1)).restore(Economy(names(2)).state())


@each(
    ("measurements", "message"),
    [
        ([], r"^economy: expected the measurement of every rank, got none$"),
        ([measured(FAST, [offers()] * 2)], r"^economy: expected costs of 1 tables, got 2$"),
        (
            [measured(FAST, [offers()[:2]])],
            r"^economy: expected a cost or None for each of exact, cast, bounded of table 'c0', got 2 entries$",
        ),
        (
            [measured(FAST, [(*offers()[:2], None)])],
            r"^economy: expected the cost of 'bounded' for table 'c0' forward, got None; what is in use",
        ),
        (
            [measured(FAST, [offers()]), measured(FAST, [(offers()[0], None, offers()[2])])],
            r"^economy: expected every rank to offer 'cast' for a table or none, got 1 of 2 ranks; give all",
        ),
    ],
)
def test_measurements_that_do_not_fit_are_refused(measurements, message):
    with pytest.raises(ConfigError, match=message):
        Economy(names(1)).review(0, measurements)


def test_an_unknown_first_choice_is_refused():
    with pytest.raises(
        ConfigError, match=r"^economy\.first: expected one of exact, cast, bounded, got 'fp16'$"
    ):
        Economy(names(1), "fp16")
