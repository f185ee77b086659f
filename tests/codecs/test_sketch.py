"""Sketch: the sum of what the ranks have, exactly, or an error; never an estimate."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic import Frame, Sketch
from laconic.errors import ConfigError, FormatError, HeadroomError, PeelingError
from tests.cases import each
from tests.codecs.sketch_cases import ROW, Case, random_case, reduced_block, sum_by_sketch, summed_block

I32 = st.integers(-(2**31 - 2**16), 2**31 - 2**16)
VECTORS = st.lists(st.one_of(st.just(0), st.just(0), I32), max_size=200)
SPARSE = Sketch(1000, cells=90)
every_dtype = pytest.mark.parametrize("dtype", ["int32", "int64"])
every_index = pytest.mark.parametrize("index", ["bitmap", "bloom"])


def vector(*entries: tuple[int, int], size: int = 1000, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    x = torch.zeros(size, dtype=dtype)
    for position, value in entries:
        x[position] = value
    return x


@each("seed", range(40))
def test_the_sum_of_any_ranks_is_the_dense_sum(seed):
    case = random_case(seed)
    total, _, _ = sum_by_sketch(case, seed, reduced_block if seed % 2 else summed_block)
    assert torch.equal(total, case.total)


@each("seed", range(100, 130))
def test_small_sums_are_dense_sums_too(seed):
    case = random_case(seed, largest=300)
    total, _, _ = sum_by_sketch(case, seed)
    assert torch.equal(total, case.total)


@settings(max_examples=60)
@given(values=VECTORS, seed=st.integers(0, 2**64 - 1), dtype=st.sampled_from(["int32", "int64"]))
def test_every_vector_comes_back(values, seed, dtype):
    x = torch.tensor(values, dtype=torch.int32)
    case = Case(len(x), int((x != 0).sum()), False, dtype, [x], x.long())
    total, _, sketch = sum_by_sketch(case, seed)
    assert torch.equal(total, x.long())
    assert sketch.encode(x).numel() == sketch.nbytes == sketch.max_bytes((len(x),))


@settings(max_examples=60)
@given(values=st.lists(I32, min_size=4, max_size=60), cells=st.integers(3, 59), seed=st.integers(0, 50))
def test_too_few_cells_stall_and_never_estimate(values, cells, seed):
    x = torch.tensor(values, dtype=torch.int32)
    sketch = Sketch(len(x), cells=min(cells, len(x)), seed=seed)
    with suppress(PeelingError):
        assert torch.equal(sketch.decode(sketch.encode(x), (len(x),)), x)


def test_a_stall_says_what_to_do():
    sketch = Sketch(100, cells=30)
    with pytest.raises(
        PeelingError,
        match=r"stalled with \d+ entries left in 30 cells; encode with another seed, or with more",
    ):
        sketch.decode(sketch.encode(torch.ones(100, dtype=torch.int32)), (100,))


PATTERNS = {
    "one column of every row": lambda i: i % ROW == 5,
    "one row": lambda i: i // ROW == 77,
    "rows in sequence": lambda i: i // ROW < 150,
    "every other row": lambda i: i // ROW % 2 == 0,
    "every hundredth entry": lambda i: i % 100 == 0,
    "powers of two": lambda i: (i & (i - 1)) == 0,
    "nothing": lambda i: i < 0,
    "everything": lambda i: i >= 0,
}


@every_index
@each("pattern", PATTERNS)
def test_structured_vectors_peel_like_any_other(pattern, index):
    i = torch.arange(200_000)
    chosen = PATTERNS[pattern](i)
    x = torch.where(chosen, i * 7 - 300_000, 0).int()
    sketch = Sketch.for_union(len(x), int(chosen.sum()))
    if index == "bloom" and sketch.cells < sketch.size:
        sketch = dataclasses.replace(sketch, index=index, cells=sketch.cells + sketch.cells // 10)
    peeled = 0
    for seed in range(5):
        try:
            sketch = dataclasses.replace(sketch, seed=seed)
            assert torch.equal(sketch.decode(sketch.encode(x), (len(x),)), x)
            peeled += 1
        except PeelingError:
            continue
    assert peeled >= 4


def test_entries_that_cancel_are_zero_in_the_sum():
    x, y = vector((3, 5), (70, -9), (999, 2)), vector((3, -5), (70, 9))
    total = SPARSE.add(SPARSE.encode(x), SPARSE.encode(y))
    assert torch.equal(SPARSE.decode(total, (1000,)), vector((999, 2)))


def test_adding_the_ways_of_a_peer_and_of_a_network_gives_the_same_block():
    ranks = [vector((i, i + 1), (500 + i, -i - 1)) for i in range(5)]
    assert torch.equal(summed_block(SPARSE, ranks), reduced_block(SPARSE, ranks))


@every_dtype
@each("kind", [torch.int32, torch.int64])
def test_cells_and_input_may_have_different_types(dtype, kind):
    sketch = dataclasses.replace(SPARSE, dtype=dtype)
    x = vector((1, -7), (2, 2**30), (998, -(2**30)), dtype=kind)
    assert torch.equal(sketch.decode(sketch.encode(x), (1000,)), x.int())
    assert torch.equal(sketch.decode(sketch.encode(x), (10, 100), torch.int64), x.long().view(10, 100))


def test_strided_input_is_read_in_its_own_order():
    x = torch.randint(-3, 3, (20, 90), dtype=torch.int32)[:, ::3].t()
    sketch = Sketch.for_union(600, 600)
    assert torch.equal(sketch.encode(x), sketch.encode(x.contiguous()))


# ---- overflow -----------------------------------------------------------------------------------


@every_dtype
@each("cells", [90, 1000])
def test_a_sum_that_might_overflow_is_refused_by_add(dtype, cells):
    sketch = Sketch(1000, cells=cells, dtype=dtype)
    half = sketch.limit // 2 + 1
    block = sketch.encode(vector((5, half), dtype=torch.int64))
    with pytest.raises(HeadroomError, match=rf"may reach \d+, {dtype} cells take {sketch.limit}; "):
        sketch.add(block, block)


@every_dtype
def test_a_sum_that_might_overflow_is_refused_by_decode_where_the_network_did_not_look(dtype):
    sketch = dataclasses.replace(SPARSE, dtype=dtype)
    half = sketch.limit // 2 + 1
    total = reduced_block(sketch, [vector((5, half), dtype=torch.int64)] * 2)
    with pytest.raises(HeadroomError, match="may reach"):
        sketch.decode(total, (1000,), torch.int64)


def test_cells_may_wrap_as_long_as_entries_fit():
    rng = np.random.default_rng(0)
    sketch = Sketch(1000, cells=900)
    ranks = [
        torch.from_numpy(rng.integers(0, 2**29, 1000, dtype=np.int32)) * (torch.arange(1000) % 2)
        for _ in range(3)
    ]
    ranks = [x.int() for x in ranks]
    exact = dataclasses.replace(sketch, dtype="int64")
    cells, _ = exact.cells_and_index(reduced_block(exact, ranks))
    assert cells.max() > 2**32
    total = sketch.decode(summed_block(sketch, ranks), (1000,), torch.int64)
    assert torch.equal(total, sum(x.long() for x in ranks))


@each("value", [2**31 - 1, -(2**31), 2**31 - 2**16 + 1, 2**40, -(2**63)])
def test_an_entry_beyond_the_limit_is_refused_with_the_remedy(value):
    with pytest.raises(
        HeadroomError, match=rf"up to 2147418112 for int32 cells, got one of {abs(value)}; take dtype='int64'"
    ):
        SPARSE.encode(vector((5, value), dtype=torch.int64))


@every_dtype
def test_an_entry_at_the_limit_comes_back(dtype):
    sketch = dataclasses.replace(SPARSE, dtype=dtype)
    x = vector((5, sketch.limit), (6, -sketch.limit), dtype=torch.int64)
    assert torch.equal(sketch.decode(sketch.encode(x), (1000,), torch.int64), x)


def test_headroom_is_known_before_anything_is_sent():
    SPARSE.check_headroom(2**31 // 16 - 2**16, 16)
    SPARSE.check_headroom(0, 10**6)
    with pytest.raises(HeadroomError, match=r"entries up to 134217728 of 16 ranks may add up to 2147483648"):
        SPARSE.check_headroom(2**31 // 16, 16)


def test_what_headroom_promises_add_keeps():
    ranks, largest = 16, 2**31 // 16 - 2**16
    SPARSE.check_headroom(largest, ranks)
    total = summed_block(SPARSE, [vector((5, largest), (9, -largest))] * ranks)
    assert torch.equal(SPARSE.decode(total, (1000,)), vector((5, ranks * largest), (9, -ranks * largest)))


def test_an_entry_that_does_not_fit_the_decoded_type_is_refused():
    sketch = dataclasses.replace(SPARSE, dtype="int64")
    block = sketch.encode(vector((5, 2**31), dtype=torch.int64))
    with pytest.raises(HeadroomError, match=r"expected entries within int32, got 0\.\.2147483648"):
        sketch.decode(block, (1000,))


# ---- sizes --------------------------------------------------------------------------------------


@each(
    ("size", "nonzeros", "index"),
    [
        (10**6, 10**4, "bloom"),
        (10**6, 10**3, "bloom"),
        (10**6, 10**5, "bitmap"),
        (10**6, 9 * 10**5, "bitmap"),
    ],
)
def test_the_index_is_the_smaller_one(size, nonzeros, index):
    sketch = Sketch.for_union(size, nonzeros)
    assert sketch.index == index
    assert sketch.nbytes < 1.04 * 4 * size


def test_one_percent_of_a_million_takes_a_twelfth_of_a_byte_an_entry():
    assert Sketch.for_union(10**6, 10**4).nbytes < 10**6 / 12


@each(("size", "nonzeros"), [(0, 0), (1, 0), (1, 1), (2, 1), (3, 3), (4, 1), (33, 2), (100, 0)])
def test_tiny_vectors_have_sketches(size, nonzeros):
    sketch = Sketch.for_union(size, nonzeros)
    x = torch.zeros(size, dtype=torch.int32)
    x[:nonzeros] = 7
    assert torch.equal(sketch.decode(sketch.encode(x), (size,)), x)


def test_more_nonzeros_never_get_fewer_cells():
    cells = [Sketch.for_union(10**9, n).cells for n in (*range(1, 3000), *range(3000, 30_000_000, 9973))]
    assert all(a <= b for a, b in pairwise(cells))


# ---- blocks and settings ------------------------------------------------------------------------


@settings(max_examples=80)
@given(
    data=st.binary(max_size=300),
    size=st.integers(4, 400),
    cells=st.integers(3, 40),
    index=st.sampled_from(["bitmap", "bloom"]),
    dtype=st.sampled_from(["int32", "int64"]),
)
def test_any_bytes_decode_or_raise_what_is_documented(data, size, cells, index, dtype):
    sketch = Sketch(size, cells=min(cells, size - 1), index=index, dtype=dtype)
    block = torch.zeros(sketch.nbytes, dtype=torch.uint8)
    known = torch.tensor(list(data[: sketch.nbytes]), dtype=torch.uint8)
    block[len(block) - len(known) :] = known
    try:
        again = sketch.encode(sketch.decode(block, (size,), torch.int64))
    except (FormatError, PeelingError, HeadroomError):
        return
    cells_of_x, _ = sketch.cells_and_index(again)
    assert np.array_equal(cells_of_x[:-1], sketch.cells_and_index(block)[0][:-1])


@every_index
@every_dtype
def test_views_are_the_block_itself(index, dtype):
    sketch = dataclasses.replace(SPARSE, index=index, dtype=dtype)
    block = sketch.encode(vector((5, 1)))
    cells, words = sketch.cells_and_index(block)
    assert cells.nbytes + words.nbytes == sketch.nbytes
    assert (cells.dtype, words.dtype) == (np.dtype(dtype), np.dtype(np.uint32))
    assert len(cells) == 91
    cells[0] += 1
    assert sketch.cells_and_index(block.numpy())[0][0] == cells[0]


@every_dtype
def test_a_block_inside_a_message_decodes_wherever_it_lies(dtype):
    sketch = dataclasses.replace(SPARSE, dtype=dtype)
    x = vector((5, 1), (77, -3))
    message = torch.cat([torch.zeros(3, dtype=torch.uint8), sketch.encode(x)])
    assert torch.equal(sketch.decode(message[3:], (1000,)), x)
    with pytest.raises(ConfigError, match="contiguous, aligned block"):
        sketch.cells_and_index(message[3:])


def test_a_block_of_another_length_is_refused():
    block = SPARSE.encode(vector((5, 1)))
    for wrong in (block[:-1], torch.cat([block, block[:1]]), block[:0]):
        with pytest.raises(FormatError, match=rf"block: expected {SPARSE.nbytes} bytes, got {len(wrong)}"):
            SPARSE.decode(wrong, (1000,))
        with pytest.raises(FormatError, match="block: expected"):
            SPARSE.add(block, wrong)
        with pytest.raises(FormatError, match="block: expected"):
            SPARSE.add(wrong, block)


@each(
    ("settings_", "message"),
    [
        ({"size": -1, "cells": -1}, r"sketch.size: expected 0\.\.4294967295, got -1"),
        ({"size": 10, "cells": 2}, "sketch.cells: expected 3 or more and no more than the size of 10, got 2"),
        ({"size": 10, "cells": 11}, "no more than the size of 10, got 11"),
        ({"size": 10, "cells": 5, "seed": -1}, "sketch.seed: expected 0"),
        ({"size": 10, "cells": 5, "index": "blom"}, r"no such form 'blom' \(known: bitmap, bloom\)"),
        ({"size": 10, "cells": 5, "dtype": "int16"}, r"no such type 'int16' \(known: int32, int64\)"),
        ({"size": 10, "cells": 10, "index": "bloom"}, "need no Bloom filter; use 'bitmap'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings_, message):
    with pytest.raises(ConfigError, match=message):
        Sketch(**settings_)


def test_arguments_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match=r"expected 0\.\.10 nonzeros, got 11"):
        Sketch.for_union(10, 11)
    with pytest.raises(ConfigError, match=r"int32 or int64, got torch\.float32; quantize it first"):
        SPARSE.encode(torch.zeros(1000))
    with pytest.raises(ConfigError, match="expected 1000 entries, got 999"):
        SPARSE.encode(torch.zeros(999, dtype=torch.int32))
    with pytest.raises(ConfigError, match=r"expected a shape of 1000 entries, got \(10, 10\)"):
        SPARSE.decode(SPARSE.encode(vector()), (10, 10))
    with pytest.raises(ConfigError, match=r"dtype torch\.int32 or torch\.int64, got torch\.float32"):
        SPARSE.decode(SPARSE.encode(vector()), (1000,), torch.float32)


def test_a_frame_cannot_carry_a_sketch_because_it_could_not_be_decoded():
    with pytest.raises(ConfigError, match="a block of Sketch does not say all that decoding it needs"):
        Frame.of(SPARSE, vector((5, 1)))


def test_another_seed_is_another_value_and_other_bytes():
    x = vector((5, 1), (6, 2))
    other = dataclasses.replace(SPARSE, seed=1)
    assert other != SPARSE
    assert not torch.equal(other.encode(x), SPARSE.encode(x))
