"""Streams: every sample once, the same batches on all ranks that divide them, equal parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.data.streams import Streams, stream_count


@pytest.mark.parametrize(
    ("ranks", "least", "count"),
    [(1, 64, 64), (64, 64, 64), (128, 64, 128), (3, 64, 96), (6, 64, 96), (96, 64, 96), (5, 1, 5), (1, 1, 1)],
)
def test_ranks_of_one_odd_part_have_the_same_streams(ranks, least, count):
    assert stream_count(ranks, least) == count


def sequence(streams, begins):
    """All samples in the order of the epoch, as (group, place in it), by following segments."""
    by_place = {}
    for stream in range(streams.count):
        for segment in streams.segments(stream, begins):
            for i in range(segment.samples):
                here = segment.after(segment.first + i)
                assert (here.first, here.samples) == (segment.first + i, segment.samples - i)
                place = here.begin - 1 if here.turned else here.begin
                by_place[streams.position(stream, here.first)] = (segment.group, place)
    return by_place


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16]),
    st.booleans(),
)
def test_every_sample_is_in_one_stream_at_one_place(rows, count, turned):
    begins = np.concatenate([[0], np.cumsum(rows)])
    streams = Streams(sum(rows), count, turned)
    found = sequence(streams, begins)
    assert sorted(found) == list(range(sum(rows)))
    assert sorted(found.values()) == [(g, i) for g, n in enumerate(rows) for i in range(n)]


@given(st.integers(0, 500), st.sampled_from([(8, 2), (8, 8), (64, 4), (96, 3), (96, 12), (5, 5), (6, 6)]))
def test_ranks_have_equal_parts_of_batches_that_can_be_divided(samples, case):
    count, ranks = case
    streams = Streams(samples, count)
    for batch in (ranks, 3 * ranks):
        for begin in range(0, samples - batch, batch):
            parts = [
                int(
                    (
                        streams.taken(begin + batch, own.start, own.stop)
                        - streams.taken(begin, own.start, own.stop)
                    ).sum()
                )
                for own in (streams.of(rank, ranks) for rank in range(ranks))
            ]
            assert parts == [batch // ranks] * ranks
    lengths = streams.taken(samples, 0, count)
    assert lengths.sum() == samples
    assert np.ptp(lengths) <= 1


def test_a_group_that_two_streams_share_is_needed_by_both_at_the_same_time():
    streams, begins = Streams(100, 4), np.array([0, 30, 60, 90, 100])
    first = {(s, each.group): each.first for s in range(4) for each in streams.segments(s, begins)}
    last = {
        (s, each.group): each.first + each.samples for s in range(4) for each in streams.segments(s, begins)
    }
    assert last[0, 0] == last[1, 0] == 25  # ends of both
    assert first[1, 1] == first[2, 1] == 0  # begins of both
    assert last[2, 2] == last[3, 2] == 25


def test_streams_of_ranks_that_do_not_divide_them_are_all_there():
    streams = Streams(1000, 64)
    assert [s for rank in range(3) for s in streams.of(rank, 3)] == list(range(64))
    assert [len(streams.of(rank, 128)) for rank in range(128)].count(1) == 64
