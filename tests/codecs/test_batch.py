"""Batch: one call, one buffer, and errors that name the block."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laconic import Batch, BoundedRows, Cast
from laconic.errors import ConfigError, FormatError
from tests.cases import each

SHAPES = [(100, 8), (0, 8), (3, 3)]


def make():
    torch.manual_seed(0)
    codecs = [BoundedRows(0.02), BoundedRows(1.0), Cast("int8")]
    return Batch.of(list(zip(codecs, SHAPES, strict=True))), torch.randn(809)


def test_buffers_of_the_caller_are_filled_in_place():
    batch, values = make()
    out, offsets = torch.empty(batch.max_bytes + 5, dtype=torch.uint8), torch.empty(4, dtype=torch.int64)
    buffer, returned = batch.encode(values, out=out, offsets=offsets)
    assert buffer.data_ptr() == out.data_ptr()
    assert returned.data_ptr() == offsets.data_ptr()
    decoded = torch.empty(809)
    assert batch.decode(buffer, offsets, out=decoded).data_ptr() == decoded.data_ptr()
    assert bool((values[:800] - decoded[:800]).abs().max() <= 0.02)


def test_no_blocks_are_no_bytes():
    batch = Batch.of([])
    buffer, offsets = batch.encode(torch.empty(0))
    assert buffer.numel() == 0
    assert offsets.tolist() == [0]
    assert batch.decode(buffer, offsets).numel() == 0


def test_a_bad_block_is_named():
    batch, values = make()
    buffer, offsets = batch.encode(values)
    buffer = buffer.clone()
    buffer[0] = 77
    with pytest.raises(FormatError, match=r"block 0: form: outside 0\.\.4"):
        batch.decode(buffer, offsets)
    offsets[3] -= 1
    buffer[0] = 3
    with pytest.raises(FormatError, match="block 2: block: expected 33 bytes for this shape, got 32"):
        batch.decode(buffer, offsets)


@each("offsets", [[0, 5, 4, 9], [-1, 5, 5, 9], [0, 5, 5, 10**9], [0, 2**62, 2**62, 2**63 - 1]])
def test_offsets_outside_the_buffer_are_refused(offsets):
    batch, values = make()
    buffer, _ = batch.encode(values)
    with pytest.raises(FormatError, match="are not inside the buffer of"):
        batch.decode(buffer, torch.tensor(offsets))


def test_a_wrong_number_of_values_is_refused_with_both_numbers():
    batch, values = make()
    with pytest.raises(ConfigError, match=r"batch\.x: expected .* with 809 entries, got .*\(808,\)"):
        batch.encode(values[:-1])


def test_a_buffer_that_is_too_small_or_strided_is_refused():
    batch, values = make()
    with pytest.raises(ConfigError, match=r"batch\.out: expected .* at least \d+ entries"):
        batch.encode(values, out=torch.empty(10, dtype=torch.uint8))
    with pytest.raises(ConfigError, match=r"batch\.out: expected contiguous"):
        batch.encode(values, out=torch.empty(2 * batch.max_bytes, dtype=torch.uint8)[::2])
    buffer, offsets = batch.encode(values)
    with pytest.raises(ConfigError, match=r"batch\.out: expected contiguous 1-D torch\.float32"):
        batch.decode(buffer, offsets, out=torch.empty(809, dtype=torch.float64))


def test_a_block_beyond_the_limits_is_refused():
    with pytest.raises(
        ConfigError, match="block 0: expected at most 4294967295 values, got 4294967296 x 1; split it"
    ):
        Batch.of([(BoundedRows(), (2**32, 1))])


def test_threads_below_one_are_refused():
    batch, values = make()
    with pytest.raises(ConfigError, match="threads: expected at least 1, got 0"):
        batch.encode(values, threads=0)


def test_damage_to_small_blocks_is_found_as_if_each_were_by_itself():
    """Streams of neighboring blocks are decoded together: that must not show."""
    codec, blocks, shape = BoundedRows(0.4), 7, (16, 32)
    together, alone = Batch.of([(codec, shape)] * blocks), Batch.of([(codec, shape)])
    buffer, offsets = together.encode(torch.randn(blocks * 512, generator=torch.Generator().manual_seed(0)))
    random = np.random.default_rng(0)
    outcomes = set()
    for _ in range(300):
        damaged = buffer.clone()
        damaged[random.integers(len(damaged), size=2)] = torch.from_numpy(
            random.integers(256, size=2).astype(np.uint8)
        )
        expected, values = None, []
        for i in range(blocks):
            block = damaged[offsets[i] : offsets[i + 1]].clone()
            try:
                values.append(alone.decode(block, torch.tensor([0, len(block)])))
            except FormatError as error:
                expected = f"block {i}: {error}"
                break
        if expected is None:
            found = together.decode(damaged, offsets)
            assert torch.equal(found.view(torch.int32), torch.cat(values).view(torch.int32))
        else:
            with pytest.raises(FormatError) as caught:
                together.decode(damaged, offsets)
            assert str(caught.value) == expected
        outcomes.add(expected is None)
    assert outcomes == {True, False}
