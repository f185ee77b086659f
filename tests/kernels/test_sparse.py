"""Sparse tensors: their sums are those of dense ones, all kernels agree to the byte, and lies are refused."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic import kernels
from laconic.errors import FormatError
from laconic.kernels import LayerThresholds, SparseParts
from tests.cases import each

ALL = [kernels.load(name) for name in kernels.available()]
every_backend = pytest.mark.parametrize("backend", ALL, ids=lambda backend: backend.name)
TYPES = [np.float32, np.float64, np.int32, np.int64]
UNITS = [1, 2, 4, 8, 16, 32, 64]


def sparse_tensor(rng, words, density, dtype, run):
    """Runs of ``run`` words that are there with this probability; edges among the values."""
    there = np.repeat(rng.random(words // run + 1) < density, run)[:words]
    if np.issubdtype(dtype, np.integer):
        values = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, words, dtype, endpoint=True)
    else:
        values = (rng.standard_normal(words) * 10.0 ** rng.integers(-6, 7, words)).astype(dtype)
        odd = rng.random(words) < 0.01
        values[odd] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3e38], odd.sum()).astype(dtype)
    return np.where(there, values, values.dtype.type(0))


def compacted(backend, x, unit=1, bounds=None):
    bounds = np.array([0, len(x)]) if bounds is None else bounds
    room = sum(backend.sparse_index_room(int(n), unit) for n in np.diff(bounds))
    index, values = np.full(room, 77, np.uint8), np.empty(len(x), x.dtype)
    sizes = np.empty((len(bounds) - 1, 2), np.int64)
    backend.compact(x, bounds, unit, index, values, sizes)
    return index[: sizes[:, 0].sum()], values[: sizes[:, 1].sum()], sizes


def parts(blocks):
    """Put the blocks together."""
    index, values = (np.concatenate([block[k] for block in blocks]) for k in (0, 1))
    bounds = [np.cumsum([0, *(len(block[k]) for block in blocks)]) for k in (0, 1)]
    return SparseParts(index, bounds[0], values, bounds[1])


def rank_order_sum(tensors):
    with np.errstate(all="ignore"):
        total = np.zeros_like(tensors[0])
        for tensor in tensors:
            total = total + tensor
    return total


def assert_same_bits(actual, expected):
    bits = f"u{expected.itemsize}"
    same = actual.view(bits) == expected.view(bits)
    if not np.issubdtype(expected.dtype, np.integer):
        same |= np.isnan(actual) & np.isnan(expected)
    assert same.all()


@st.composite
def situations(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    words = draw(st.one_of(st.integers(0, 300), st.sampled_from([32767, 32768, 32769, 70000])))
    density = draw(st.sampled_from([0.0, 0.0005, 0.01, 0.1, 0.3, 0.6, 0.98, 1.0]))
    dtype, unit, run = (
        draw(st.sampled_from(TYPES)),
        draw(st.sampled_from(UNITS)),
        draw(st.sampled_from([1, 5, 64])),
    )
    ranks = draw(st.integers(1, 5))
    return [sparse_tensor(rng, words, density, dtype, run) for _ in range(ranks)], unit, rng


@settings(max_examples=50, deadline=None)
@given(situations())
def test_the_sum_is_the_dense_one_in_rank_order_and_all_kernels_agree(situation):
    tensors, unit, _ = situation
    expected = rank_order_sum(tensors)
    written = []
    for backend in ALL:
        blocks = [compacted(backend, x, unit) for x in tensors]
        out = tensors[-1].copy()  # one rank's own: nothing outside the union
        backend.place_sum(parts(blocks), unit, out)
        assert_same_bits(out, expected)

        index = np.empty(backend.sparse_index_room(len(out), unit), np.uint8)
        values = np.empty(len(out), out.dtype)
        size = backend.compact_sum(parts(blocks), len(out), unit, index, values)
        total = [index[: size[0]], values[: size[1]]]
        again = np.zeros_like(out)
        backend.place_sum(parts([total]), unit, again)
        assert_same_bits(again, expected)
        written.append([*(part.tobytes() for block in blocks for part in block), total[0].tobytes()])
    assert all(one == written[0] for one in written)


@settings(max_examples=25, deadline=None)
@given(situations(), st.integers(1, 6))
def test_segments_are_tensors_of_their_own(situation, segments):
    (x, *_), unit, rng = situation
    bounds = np.sort(np.r_[0, rng.integers(0, len(x) + 1, segments - 1), len(x)])
    results = [compacted(backend, x, unit, bounds) for backend in ALL]
    for index, values, sizes in results:
        alone = [compacted(ALL[0], x[a:b], unit) for a, b in pairwise(bounds)]
        assert index.tobytes() == b"".join(block[0].tobytes() for block in alone)
        assert values.tobytes() == b"".join(block[1].tobytes() for block in alone)
        assert sizes.tolist() == [block[2][0].tolist() for block in alone]


@settings(max_examples=40, deadline=None)
@given(situations(), st.lists(st.sampled_from([0.0, 1e-30, 0.5, 3.0, np.inf]), min_size=1, max_size=6))
def test_large_entries_move_out_and_the_rest_stays_in_memory(situation, thresholds):
    _, _, rng = situation
    n = int(rng.choice([0, 1, 63, 64, 65, 1000, 33000, 70000]))
    first, second = (sparse_tensor(rng, n, 0.5, np.float32, 1) for _ in range(2))
    bounds = np.sort(np.r_[0, rng.integers(0, n + 1, len(thresholds) - 1), n])
    thresholds = np.array(thresholds, np.float32)
    layers = LayerThresholds(bounds, thresholds)
    results = []
    for backend in ALL:
        gradient, memory = first.copy(), second.copy()
        index, values = np.empty(backend.sparse_index_room(n, 1), np.uint8), np.empty(n, np.float32)
        counts = np.empty(len(thresholds), np.int64)
        size = backend.compact_large(gradient, memory, layers, index, values, counts)
        sent = np.zeros(n, np.float32)
        backend.place_sum(parts([(index[: size[0]], values[: size[1]])]), 1, sent)
        with np.errstate(all="ignore"):
            total = first + second
        large = ~(np.abs(total) < np.repeat(thresholds, np.diff(bounds)))
        assert_same_bits(sent, np.where(large, total + np.float32(0), np.float32(0)))
        assert_same_bits(memory, np.where(large, np.float32(0), total))
        assert not gradient.any()
        assert counts.tolist() == [large[a:b].sum() for a, b in pairwise(bounds)]
        results.append((index[: size[0]].tobytes(), size))
    assert all(result == results[0] for result in results)


@every_backend
def test_the_index_is_near_its_entropy(backend):
    rng, words = np.random.default_rng(0), 1 << 17
    for density in (0.001, 0.01, 0.05, 0.2):
        x = (rng.random(words) < density).astype(np.int32)
        index, values, _ = compacted(backend, x)
        d = len(values) / words
        entropy = -(d * np.log2(d) + (1 - d) * np.log2(1 - d)) * words / 8
        assert len(index) < 1.2 * entropy + 2 * words / 32768


@every_backend
def test_whole_rows_cost_next_to_no_index(backend):
    rng = np.random.default_rng(0)
    x = sparse_tensor(rng, 1 << 17, 0.02, np.float32, 64)
    single, whole = compacted(backend, x), compacted(backend, x, 64)
    assert len(whole[0]) < len(single[0]) / 15
    assert whole[1].size <= single[1].size * 1.05


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damaged_parts_are_refused_or_mean_something(data):
    """All kernels do the same with them, and none writes outside."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    words, unit = data.draw(st.sampled_from([1, 64, 100, 40000])), data.draw(st.sampled_from([1, 8, 64]))
    x = sparse_tensor(rng, words, data.draw(st.sampled_from([0.01, 0.2, 0.7, 1.0])), np.float32, 1)
    index, values, _ = compacted(ALL[0], x, unit)
    index, values = index.copy(), values.copy()
    if data.draw(st.booleans()) and len(index):
        for _ in range(data.draw(st.integers(1, 4))):
            index[data.draw(st.integers(0, len(index) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    index = index[: data.draw(st.integers(max(0, len(index) - 3), len(index)))]
    values = values[: data.draw(st.integers(max(0, len(values) - 2), len(values)))]
    outcomes = []
    for backend in ALL:
        guarded = np.full(words + 2, 5, np.float32)
        try:
            backend.place_sum(parts([(index, values)]), unit, guarded[1:-1])
            outcomes.append(guarded.tobytes())
        except FormatError as error:
            outcomes.append(str(error))
        assert guarded[0] == guarded[-1] == 5
    assert all(outcome == outcomes[0] for outcome in outcomes)


@every_backend
@each("unit", [0, -1, 3, 128])
def test_an_impossible_unit_is_refused(backend, unit):
    with pytest.raises(ValueError, match="unit"):
        backend.sparse_index_room(10, unit)


@every_backend
def test_bounds_that_do_not_fit_are_refused(backend):
    x, room = np.zeros(10, np.float32), np.empty(100, np.uint8)
    for bounds in ([0, 9], [1, 10], [0, 7, 5, 10], [0, 11]):
        with pytest.raises(ValueError, match="bounds"):
            backend.compact(x, np.array(bounds), 1, room, x.copy(), np.empty((len(bounds) - 1, 2), np.int64))
