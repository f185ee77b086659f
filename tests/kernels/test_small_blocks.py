"""Many small blocks in one call: what is decoded side by side, packed in groups and fitted to a window.

Small blocks take short cuts that large ones never see. Whatever the short cut, the reference, which has
none, must write the same bytes, read the same values and refuse the same damage.

Shapes: ``R`` rows, ``C`` columns.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import torch
from torch import Tensor

from laconic.kernels.blocks import BlockSpec, Kind
from laconic.kernels.reference.blocks.batch import describe_block
from tests.cases import each
from tests.kernels.test_backends_agree import (
    REFERENCE,
    Block,
    assert_agreement,
    assert_same_verdict,
    damaged,
    encode,
    replaced,
    tensor,
)

BOUND = 0.02


def every_sort(rng: random.Random) -> list[Block]:
    """Blocks of one stream whose code is static or their own, wide ones, deduplicated ones, and others between."""
    torch.manual_seed(rng.getrandbits(32))
    table = torch.randn(5, 16)
    values = [
        torch.randn(8, 16),
        torch.randn(3, 7) * 0.1,
        torch.randint(0, 3, (20, 12)) * 0.3,
        torch.poisson(torch.full((8, 32), 4.0)) * 0.05,
        torch.randn(8, 16) * 30,
        table[torch.randint(0, 5, (12,))],
        table[torch.randint(0, 5, (12,))] * 40,
        torch.randn(16, 32),
        torch.rand(9, 9),
        torch.zeros(4, 4),
        torch.randn(30, 8) * (torch.rand(30, 8) < 0.1),
    ]
    return [(BlockSpec(Kind.ROWS, BOUND), x_RC.float()) for x_RC in rng.sample(values, len(values))]


def sorts(data: bytes, offsets: Tensor, blocks: list[Block]) -> Counter[str]:
    """How many blocks there are of each form and kind of code."""
    found: Counter[str] = Counter()
    for i, (_, x_RC) in enumerate(blocks):
        fields = describe_block(Kind.ROWS, tensor(data[int(offsets[i]) : int(offsets[i + 1])]), *x_RC.shape)
        kinds = [field.value for field in fields if field.name.endswith("sequence kind")]
        found[f"{fields[0].value}, {kinds[-1] if kinds else None}"] += 1
    return found


@each("seed", range(2))
def test_blocks_read_side_by_side_are_read_as_if_alone(seed):
    rng = random.Random(seed)
    blocks = [block for _ in range(4) for block in every_sort(rng)]
    data, offsets = assert_agreement(blocks)
    found = sorts(data, offsets, blocks)
    assert len(found) >= 8, found
    for _ in range(10):
        i = rng.randrange(len(blocks))
        block = data[int(offsets[i]) : int(offsets[i + 1])]
        assert_same_verdict(blocks, *replaced(data, offsets, i, damaged(rng, block)))


@each("bits", range(5, 16))
def test_packed_values_of_every_width(bits):
    """Uniform codes are packed, narrower ones grouped; sizes around groups of eight."""
    torch.manual_seed(bits)
    blocks: list[Block] = []
    for n in (*range(2, 20), 33, 64, 511):
        codes = torch.randint(0, 1 << bits, (1, n))
        codes[0, 0], codes[0, -1] = 0, (1 << bits) - 1
        blocks.append((BlockSpec(Kind.ROWS, 0.5), codes.float()))
    data, offsets = assert_agreement(blocks)
    assert sum(data[int(start)] == 2 for start in offsets[:-1]) > len(blocks) // 2


@each(
    ("n", "tail"),
    [
        *product((2, 31, 511, 512, 513), (0.6, 1.0, 2.0, 8.0)),
        *((4096, 0.6), (4096, 2.0), (4097, 1.0), (4097, 8.0), (5003, 0.6)),
    ],
)
def test_windows_of_wide_codes(n, tail):
    """From nearly all codes in a narrow window and some far away to normal ones; around zero and elsewhere."""
    torch.manual_seed(n)
    heavy = torch.randn(1, n) / torch.rand(1, n) ** (1 / tail)
    mostly_zero = heavy * (torch.rand(1, n) < 0.1)
    holes = heavy.clone()
    holes[0, n // 2] = torch.nan
    for x_RC in (heavy, mostly_zero, holes, heavy + 77, torch.rand(1, n) + 9):
        assert_agreement([(BlockSpec(Kind.ROWS, bound), x_RC) for bound in (0.03, 0.004, 0.0003)])


def test_damage_beyond_the_blocks_that_wait_names_the_first_bad_one():
    torch.manual_seed(0)
    blocks = [(BlockSpec(Kind.ROWS, BOUND), torch.randn(8, 16)) for _ in range(7)]
    data, offsets = encode(REFERENCE, blocks)
    for i in (2, 5):  # its stream is one byte longer than its codes
        block = data[int(offsets[i]) : int(offsets[i + 1])]
        data, offsets = replaced(data, offsets, i, damaged_stream(block))
    assert_same_verdict(blocks, data, offsets)


def damaged_stream(block: bytes) -> bytes:
    """An entropy block of one chunk whose size counts one byte of zeros more."""
    fields = describe_block(Kind.ROWS, tensor(block), 8, 16)
    sizes = next(field for field in fields if field.name == "chunk sizes")
    chunk = next(field for field in fields if field.name.startswith("chunk 0"))
    longer = int.from_bytes(block[sizes.offset : sizes.offset + 2], "little") + 1
    end = chunk.offset + chunk.size
    return (
        block[: sizes.offset]
        + longer.to_bytes(2, "little")
        + block[sizes.offset + 2 : end]
        + b"\0"
        + block[end:]
    )
