"""IdList: whatever the ids, they come back."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic import IdList, kernels
from laconic.errors import ConfigError, FormatError

I64 = st.integers(-(2**63), 2**63 - 1)
LISTS = st.one_of(
    st.lists(I64, max_size=300),
    st.lists(I64, max_size=300).map(sorted),
    st.lists(st.integers(0, 50), max_size=800),
    st.lists(st.integers(0, 10**6), max_size=300).map(sorted),
)


@settings(max_examples=80)
@given(LISTS)
def test_every_list_comes_back(ids):
    x = torch.tensor(ids, dtype=torch.int64)
    block = IdList().encode(x)
    assert block.numel() <= IdList().max_bytes((len(ids),))
    assert torch.equal(IdList().decode(block, (len(ids),)), x)


@settings(max_examples=40)
@given(st.lists(LISTS, max_size=8), st.integers(1, 4))
def test_many_lists_are_what_single_lists_are(lists, threads):
    counts = np.array([len(ids) for ids in lists], np.int64)
    flat = np.array([i for ids in lists for i in ids], np.int64)
    out, offsets = np.empty(8 * flat.size + 16 * counts.size, np.uint8), np.empty(counts.size + 1, np.int64)
    kernels.active().encode_ids(counts, flat, out, offsets, threads)
    buffer = out[: offsets[-1]]
    singles = [IdList().encode(torch.tensor(ids, dtype=torch.int64)).numpy() for ids in lists]
    assert buffer.tobytes() == b"".join(single.tobytes() for single in singles)
    back = np.empty_like(flat)
    kernels.active().decode_ids(counts, buffer, offsets, back, threads)
    assert np.array_equal(back, flat)


@settings(max_examples=80)
@given(st.binary(max_size=120), st.integers(0, 100))
def test_any_bytes_decode_or_raise_a_format_error(data, count):
    block = torch.tensor(list(data), dtype=torch.uint8)
    for shape in ((count,), None):
        with suppress(FormatError):
            assert IdList().decode(block, shape).numel() == count or shape is None


def test_a_block_knows_how_many_ids_it_has():
    x = torch.randint(0, 10**9, (1234,))
    assert torch.equal(IdList().decode(IdList().encode(x)), x)


def test_an_unlikely_count_must_be_confirmed():
    block = IdList().encode(torch.zeros(10**6, dtype=torch.int64))
    assert block.numel() < 16
    with pytest.raises(
        FormatError, match=r"count: the block says 1000000 ids in \d+ bytes; pass shape=\(1000000,\)"
    ):
        IdList().decode(block)
    assert IdList().decode(block, (10**6,)).numel() == 10**6


def test_a_wrong_count_is_refused():
    block = IdList().encode(torch.arange(10))
    with pytest.raises(FormatError, match="count: the block has 10 ids, expected 11"):
        IdList().decode(block, (11,))
    with pytest.raises(ConfigError, match=r"IdList: expected a shape of at least 0 ids, got \(-1,\)"):
        IdList().decode(block, (-1,))


def test_sorted_distinct_ids_cost_little_more_than_the_entropy_of_their_gaps():
    torch.manual_seed(0)
    x = torch.unique(torch.randint(0, 10**6, (100_000,)))
    _, counts = torch.unique(x.diff(), return_counts=True)
    p = counts.double() / counts.sum()
    entropy_bits = float(-(p * p.log2()).sum())
    assert IdList().encode(x).numel() * 8 / x.numel() < entropy_bits + 0.15


def test_int32_and_matrices_of_ids_work():
    x = torch.randint(0, 100, (6, 7), dtype=torch.int32)
    assert torch.equal(IdList().decode(IdList().encode(x), (6, 7)), x.long())


def test_ids_of_another_type_are_refused():
    with pytest.raises(ConfigError, match=r"expected int64 or int32 ids, got torch\.float32"):
        IdList().encode(torch.ones(3))
