"""All kernels write the same bytes, read the same values and refuse the same blocks for the same reason.

The reference is the specification: whatever it says of a block, the others must say too. Equality
is that of bytes and of bit patterns; messages of refusals are compared as well.

Shapes: ``R`` rows, ``C`` columns.
"""

from __future__ import annotations

import math
import random
import zlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from laconic import kernels
from laconic.errors import FormatError
from laconic.kernels.blocks import DITHERED, RELATIVE, RMS_RELATIVE, BlockSpec, BlockTable, Kind
from laconic.kernels.reference.blocks.batch import Field, describe_block, describe_ids
from laconic.kernels.reference.sequence.static_code import LEVELS, Shape, static_code
from tests.cases import each

NATIVE = [name for name in kernels.available() if name != "reference"]
REFERENCE = kernels.load("reference")

Block = tuple[BlockSpec, Tensor]


# ---- through one backend ------------------------------------------------------------------------


def encode(backend: kernels.Kernels, blocks: list[Block], threads: int = 1) -> tuple[bytes, Tensor]:
    table = BlockTable.of([(spec, *x_RC.shape) for spec, x_RC in blocks])
    out = torch.full((backend.max_bytes(table),), 0xAA, dtype=torch.uint8)
    offsets = torch.full((len(blocks) + 1,), -1)
    x = torch.cat([x_RC.flatten() for _, x_RC in blocks])
    backend.encode_blocks(table, x.numpy(), out.numpy(), offsets.numpy(), threads)
    return out[: int(offsets[-1])].numpy().tobytes(), offsets


def decode(
    backend: kernels.Kernels, blocks: list[Block], data: bytes, offsets: Tensor, threads: int = 1
) -> Tensor | str:
    """Bit patterns of the values, or why there are none."""
    table = BlockTable.of([(spec, *x_RC.shape) for spec, x_RC in blocks])
    out = torch.zeros(table.values)
    try:
        backend.decode_blocks(table, tensor(data).numpy(), offsets.numpy(), out.numpy(), threads)
    except FormatError as error:
        return str(error)
    return out.view(torch.int32)


def encode_ids(backend: kernels.Kernels, lists: list[Tensor]) -> tuple[bytes, Tensor]:
    counts = torch.tensor([len(ids) for ids in lists])
    out = torch.full((int((8 * counts + 16).sum()),), 0xAA, dtype=torch.uint8)
    offsets = torch.full((len(lists) + 1,), -1)
    backend.encode_ids(counts.numpy(), torch.cat(lists).numpy(), out.numpy(), offsets.numpy(), 1)
    return out[: int(offsets[-1])].numpy().tobytes(), offsets


def decode_ids(
    backend: kernels.Kernels, lists: list[Tensor], data: bytes, offsets: Tensor
) -> list[int] | str:
    counts = torch.tensor([len(ids) for ids in lists])
    out = torch.zeros(int(counts.sum()), dtype=torch.int64)
    try:
        backend.decode_ids(counts.numpy(), tensor(data).numpy(), offsets.numpy(), out.numpy(), 1)
    except FormatError as error:
        return str(error)
    ids: list[int] = out.tolist()
    return ids


def tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


# ---- what is tried ------------------------------------------------------------------------------

EDGES = [math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-45, -1e-42, 1e-38, 3e38, -3.4e38, 1.0, 65504.0, 65520.0]

BOUNDS = [1e-30, 1e-8, 1e-4, 3e-4, 1e-3, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 1.0, 10.0, 1e10, 1e30, 1e300]


FLAGS = [RELATIVE, RMS_RELATIVE, DITHERED, RELATIVE | DITHERED, RMS_RELATIVE | DITHERED]


def plain(rng: random.Random, rows: int, cols: int) -> Tensor:
    x_RC = torch.randn(rows, cols) * rng.choice([1e-41, 1e-3, 1.0, 1.0, 1e3, 1e37])
    return x_RC + rng.choice([0.0, 0.0, 3.7, -1e3, 1e6])


def repeated(rng: random.Random, rows: int, cols: int) -> Tensor:
    """Rows drawn from a table with Zipf's law, from two rows to as many as there are."""
    table = torch.randn(rng.choice([2, 5, 40, max(rows, 2)]), cols)
    weights = 1 / torch.arange(1.0, len(table) + 1) ** rng.choice([0.5, 1.0, 1.5])
    return table[torch.multinomial(weights, rows, replacement=True)] if rows else table[:0]


def integers(rng: random.Random, rows: int, cols: int) -> Tensor:
    """Codes that group well, with some far away."""
    x_RC = torch.randint(
        *rng.choice([(-2, 2), (-8, 8), (0, 2), (-60, 60), (-300, 300)]), (rows, cols)
    ).float()
    far = torch.rand(rows, cols) < rng.choice([0.0, 0.002, 0.02, 0.2])
    return torch.where(far, torch.randint(-200, 200, (rows, cols)).float(), x_RC)


def edgy(rng: random.Random, rows: int, cols: int) -> Tensor:
    x_RC = torch.randn(rows, cols) * 0.05
    planted = torch.rand(rows, cols) < rng.choice([0.01, 0.3, 0.9])
    return torch.where(planted, torch.tensor(EDGES)[torch.randint(len(EDGES), (rows, cols))], x_RC)


def any_bits(rng: random.Random, rows: int, cols: int) -> Tensor:
    return torch.randint(-(2**31), 2**31, (rows, cols)).to(torch.int32).view(torch.float32)


def constant(rng: random.Random, rows: int, cols: int) -> Tensor:
    x_RC = torch.full((rows, cols), rng.choice(EDGES))
    if rng.random() < 0.5:
        x_RC.view(-1)[:1] = rng.choice(EDGES)
    return x_RC


def random_block(rng: random.Random, shape: tuple[int, int]) -> Block:
    torch.manual_seed(rng.getrandbits(32))
    make = rng.choice([plain, plain, repeated, repeated, integers, integers, edgy, any_bits, constant])
    spec = BlockSpec(
        rng.choice([Kind.ROWS] * 8 + list(Kind)),
        rng.choice(BOUNDS),
        rng.choice([0, 0, *FLAGS]),
        rng.choice([0, 7, -1, -(2**63), 2**64 - 1, rng.getrandbits(64)]),
        rng.choice([1, 32, 255]),
        rng.choice([0.0, 0.2]),
        rng.choice([0.0, 0.2]),
    )
    return spec, make(rng, *shape)


def random_ids(rng: random.Random, n: int) -> Tensor:
    kind = rng.randrange(6)
    if kind == 0:
        return torch.tensor([rng.getrandbits(64) - 2**63 for _ in range(n)], dtype=torch.int64)
    if kind == 1:
        return torch.arange(n) * rng.choice([0, 1, 7, 2**40]) + rng.choice([0, -5, -(2**62)])
    spread = rng.choice([2, 20, 1000, 10**6, 2**60])
    ids = torch.tensor(
        [int(rng.random() ** rng.choice([1, 4]) * spread) for _ in range(n)], dtype=torch.int64
    )
    return ids.sort().values if kind < 4 else ids


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Cut, extend, delete or overwrite bytes, the first ones more often than others."""
    block = bytearray(data)
    at = min(rng.randrange(len(block)), rng.choice([2, 12, 40, 2**40]))
    way = rng.randrange(8)
    if way == 0:
        return bytes(block[:at])
    if way == 1:
        return bytes(block[:at] + bytes([rng.choice([0, 1, 127, 128, 255])]) + block[at:])
    if way == 2:
        return bytes(block[:at] + block[at + 1 :])
    block[at] = rng.choice(
        [0, 1, 255, block[at] ^ 1 << rng.randrange(8), block[at] + 1 & 255, rng.getrandbits(8)]
    )
    return bytes(block)


def replaced(data: bytes, offsets: Tensor, i: int, block: bytes) -> tuple[bytes, Tensor]:
    start, end = int(offsets[i]), int(offsets[i + 1])
    moved = torch.cat([offsets[: i + 1], offsets[i + 1 :] + len(block) - (end - start)])
    return data[:start] + block + data[end:], moved


shapes = st.one_of(
    st.tuples(st.integers(0, 50), st.integers(0, 30)),
    st.tuples(st.just(1), st.integers(0, 1500)),
    st.tuples(st.integers(0, 1500), st.just(1)),
)
rngs = st.integers(0, 2**32).map(random.Random)


# ---- what must hold -----------------------------------------------------------------------------


def assert_agreement(blocks: list[Block]) -> tuple[bytes, Tensor]:
    data, offsets = encode(REFERENCE, blocks)
    values = decode(REFERENCE, blocks, data, offsets)
    assert isinstance(values, Tensor)
    for name in NATIVE:
        for threads in (1, 2):
            written, where = encode(kernels.load(name), blocks, threads)
            assert (written == data, where.tolist()) == (True, offsets.tolist()), (name, threads)
            read = decode(kernels.load(name), blocks, data, offsets, threads)
            assert isinstance(read, Tensor), (name, read)
            assert torch.equal(read, values), (name, threads)
    return data, offsets


def assert_same_verdict(blocks: list[Block], data: bytes, offsets: Tensor) -> None:
    expected = decode(REFERENCE, blocks, data, offsets)
    for name in NATIVE:
        verdict = decode(kernels.load(name), blocks, data, offsets)
        if isinstance(expected, str) or isinstance(verdict, str):
            assert verdict == expected, name
            continue
        # which payload a sum of two NaNs has is the processor's business: only casts add what they read
        both_nan = verdict.view(torch.float32).isnan() & expected.view(torch.float32).isnan()
        adds = any(spec.kind in (Kind.INT8, Kind.INT4) for spec, _ in blocks)
        assert bool(((verdict == expected) | (both_nan & adds)).all()), name


def assert_covers(fields: list[Field], size: int) -> None:
    ends = [0, *(field.offset + field.size for field in fields)]
    assert [field.offset for field in fields] == ends[:-1]
    assert ends[-1] == size


@settings(max_examples=50)
@given(rngs, st.lists(shapes, min_size=1, max_size=3))
def test_every_backend_writes_and_reads_the_same_bytes(rng, some_shapes):
    assert_agreement([random_block(rng, shape) for shape in some_shapes])


@settings(max_examples=20)
@given(rngs, st.lists(shapes, min_size=1, max_size=2))
def test_every_backend_accepts_and_refuses_the_same_damaged_blocks(rng, some_shapes):
    blocks = [random_block(rng, shape) for shape in some_shapes]
    data, offsets = encode(REFERENCE, blocks)
    for _ in range(10):
        i = rng.randrange(len(blocks))
        block = data[int(offsets[i]) : int(offsets[i + 1])]
        assert_same_verdict(blocks, *replaced(data, offsets, i, damaged(rng, block) if block else b"\0"))


@each("n", [383, 384, 385, 1007, 1008, 1009, 1020, 1021, 8192, 8193, 32767, 32768, 32769])
@each("kind", [Kind.ROWS, Kind.HUFFMAN])
def test_sizes_at_which_the_layout_changes(kind, n):
    torch.manual_seed(n)
    for x_RC, bound in ((torch.randn(1, n), 0.02), (torch.randn(1, n) * 3, 0.001)):
        assert_agreement([(BlockSpec(kind, bound), x_RC)])


@each("n", [7, 8, 9, 33, 34, 35, 383, 384, 1023, 1025, 16383, 16385, 32769, 70_001])
@each("share", [0.0, 0.1, 0.6, 1.0])
def test_lossless_blocks_of_any_size_and_fullness(n, share):
    torch.manual_seed(n)
    x_RC = torch.where(torch.rand(1, n) < share, torch.randn(1, n), 0.0)
    x_RC[0, n // 2] = math.nan
    blocks = [(BlockSpec(Kind.LOSSLESS), x_RC)]
    data, offsets = assert_agreement(blocks)
    assert torch.equal(decode(REFERENCE, blocks, data, offsets), x_RC.view(torch.int32).flatten())


@each(
    ("make", "shape"),
    [
        *((plain, shape) for shape in [(4100, 65), (300_001, 1), (1, 263_000)]),
        *((repeated, (4100, 65)), (integers, (300_001, 1)), (integers, (1, 263_000))),
    ],
)
def test_blocks_of_which_only_samples_are_looked_at(make, shape):
    torch.manual_seed(3)
    x_RC = make(random.Random(3), *shape)
    x_RC.view(-1)[-7] = 1e9
    assert_agreement([(BlockSpec(Kind.ROWS, 0.05), x_RC)])


@each("n", [1, 7, 8, 9, 1001, 263_003])
def test_the_rms_is_the_same_to_the_last_bit(n):
    torch.manual_seed(n)
    x_RC = torch.randn(1, n) * torch.randint(-3, 4, (1, n)).float().exp()
    x_RC[0, n // 2] = math.nan if n > 7 else 2.0
    assert_agreement([(BlockSpec(Kind.ROWS, 0.1, RMS_RELATIVE), x_RC)])


@each("name", kernels.available())
@each("flags", [RELATIVE | RMS_RELATIVE, 8, -1])
def test_flags_that_contradict_each_other_or_mean_nothing_are_refused(name, flags):
    with pytest.raises(ValueError, match=r"^block 0: kind, shape, flags, window or bound out of range$"):
        encode(kernels.load(name), [(BlockSpec(Kind.ROWS, 0.1, flags), torch.ones(2, 2))])


@each("window", [1, 32, 255])
@each("rows", [2047, 2048, 2049, 4500])
def test_matches_end_with_their_window(rows, window):
    torch.manual_seed(rows)
    x_RC = torch.randn(9, 3)[torch.randint(0, 9, (rows,))]
    x_RC[1000 : 1000 + 700] = x_RC[300]
    for kind in (Kind.VECTOR_LZ, Kind.HYBRID):
        assert_agreement([(BlockSpec(kind, 0.05, window=window), x_RC)])


@each("far", [127.0, 128.0, 129.0, 200.0, 255.0, 256.0, -128.0, -129.0, -200.0, -256.0])
def test_a_few_packed_codes_beyond_a_byte_keep_their_bound(far):
    x_RC = torch.tensor([[0.0, 0.0, far]])
    blocks = [(BlockSpec(Kind.ROWS, 0.5), x_RC)]
    data, offsets = assert_agreement(blocks)
    values = decode(REFERENCE, blocks, data, offsets)
    assert isinstance(values, Tensor)
    assert bool(((values.view(torch.float32) - x_RC.flatten()).abs() <= 0.5).all())


@each("n", [1008, 1009, 1011, 1020])
def test_no_stream_outgrows_its_size_field(n):
    """Every fourth quad of a static code's longest symbols falls into the first stream."""
    lengths = static_code(0, Shape.LAPLACE, 14).lengths
    longest = torch.tensor([symbol - 128 for symbol in range(3, 254) if lengths[symbol] == 12])
    i = torch.arange(n)
    u = i * 0.6180339887 % 1 - 0.5
    near = (-8 * u.sign() * torch.log1p(-1.96 * u.abs())).round()
    x_RC = torch.where(i // 4 % 6 == 0, longest[i % len(longest)].float(), near).reshape(1, n)
    assert_agreement([(BlockSpec(Kind.ROWS, 0.5003), x_RC)])


@settings(max_examples=20)
@given(rngs, st.lists(st.integers(0, 1500), min_size=1, max_size=3))
def test_every_backend_treats_lists_of_ids_alike(rng, lengths):
    lists = [random_ids(rng, n) for n in lengths]
    data, offsets = encode_ids(REFERENCE, lists)
    for name in kernels.available():
        written, where = encode_ids(kernels.load(name), lists)
        assert (written == data, where.tolist()) == (True, offsets.tolist()), name
        assert decode_ids(kernels.load(name), lists, data, offsets) == torch.cat(lists).tolist(), name
        first = tensor(data[: int(offsets[1])])
        assert kernels.load(name).count_ids(first.numpy()) == lengths[0]
    for _ in range(10):
        i = rng.randrange(len(lists))
        block = damaged(rng, data[int(offsets[i]) : int(offsets[i + 1])])
        verdicts = {
            name: decode_ids(kernels.load(name), lists, *replaced(data, offsets, i, block))
            for name in kernels.available()
        }
        assert all(verdict == verdicts["reference"] for verdict in verdicts.values()), verdicts


@settings(max_examples=20)
@given(rngs, shapes)
def test_a_description_covers_every_byte_once(rng, shape):
    spec, x_RC = random_block(rng, shape)
    data, _ = encode(REFERENCE, [(spec, x_RC)])
    assert_covers(describe_block(spec.kind, tensor(data), *shape), len(data))
    ids, _ = encode_ids(REFERENCE, [random_ids(rng, shape[0])])
    assert_covers(describe_ids(tensor(ids)), len(ids))


NAN = math.nan
EXAMPLES = {
    "lossless, full": (
        BlockSpec(Kind.LOSSLESS),
        [[1, -0.75, 2.5, 0.125, -1.5, 1.25, -1, 0.875]],
        "02 000000 010080 000040 000000 010080 000040 010000 0000C0 80 0C 119844",
    ),
    "lossless, sparse": (
        BlockSpec(Kind.LOSSLESS),
        [[1, 0, 0, 0, -0.75, 0, 0, 0, 0, 0]],
        "03 04 1100 000000 010080 7F 04 02",
    ),
    "entropy": (
        BlockSpec(Kind.ROWS, 0.25),
        [[0.0, 0.5, -0.5], [1.0, 1.5, 2.0]],
        "03 00F0FF3E 00 0D 0524 0300 3C3D80 00 00",
    ),
    "patch": (
        BlockSpec(Kind.ROWS, 0.25),
        [[0.0, 0.5, NAN], [1.0, 1.5, 2.0]],
        "03 00F0FF3E 00 0D 0524 0200 36F6 00 01 02 0000C07F",
    ),
    "deduplicated": (
        BlockSpec(Kind.ROWS, 0.25),
        [
            [[1, 2, 3, 4, 5, 6, 7, 8], [8, 7, 6, 5, 4, 3, 2, 1], [9, 9, 1, 1, 9, 9, 1, 1]][i]
            for i in (0, 1, 0, 0, 2, 1, 0)
        ],
        "04 00F0FF3E 00 02 01 0410 0412 04 14 4010831473 8E29648800 1002002100 00 00",
    ),
    "sparse": (
        BlockSpec(Kind.ROWS, 0.5),
        [[{3: 5.0, 50: -2.0, 120: 9.0}.get(i, 0.0) for i in range(200)]],
        "02 00F07F3F 00 00 00 03 030A 2E03 4512 00",
    ),
    "vector LZ": (
        BlockSpec(Kind.VECTOR_LZ, 0.25, window=32),
        [[1, 2, 3], [8, 7, 6]] * 3 + [[9, 9, 1]],
        "05 00F0FF3E 00 00020406 00100E0C 0204 00121202 00",
    ),
    "Huffman": (
        BlockSpec(Kind.HUFFMAN, 0.5),
        [[0, 0, 1, 0, -1, 0, 0, 0, 2, 0, 0, -1, 0, 1, 0, 0]],
        "06 00F07F3F 00 02 82" + " 00" * 15 + " 80 07 1332 0300 261CC8 00",
    ),
    "int8": (
        BlockSpec(Kind.INT8),
        [[0.0, 0.5, 1.0], [-1.0, 3.0, NAN]],
        "007FFF 8180803B 00000000 000000 0000C07F 0000C07F",
    ),
    "float32": (
        BlockSpec(Kind.FLOAT32),
        [[1.0, -0.0, NAN]],
        "0000803F 00000080 0000C07F",
    ),
    "int4": (
        BlockSpec(Kind.INT4),
        [[0.0, 0.5, 1.0], [-1.0, 3.0, NAN]],
        "800F 442C 0000 0000 007E 007E",
    ),
}


@each("name", kernels.available())
@each("example", EXAMPLES)
def test_worked_examples_of_the_documents_are_what_is_written(example, name):
    spec, rows, block = EXAMPLES[example]
    data, _ = encode(kernels.load(name), [(spec, torch.tensor(rows, dtype=torch.float32))])
    assert data == bytes.fromhex(block)


@each("name", kernels.available())
def test_the_worked_example_of_an_id_list_is_what_is_written(name):
    data, _ = encode_ids(kernels.load(name), [torch.tensor([3, 5, 8, 1000, 1001, 1003, 70000])])
    assert data == bytes.fromhex("07 01 06 1C 82C129200002 E0C206")


def test_static_codes_are_those_of_the_document():
    lengths = [
        static_code(log_group, shape, level).lengths
        for log_group in range(4)
        for shape in Shape
        for level in range(LEVELS)
    ]
    assert zlib.crc32(b"".join(map(bytes, lengths))) == 0xBB81CC21


@each("name", kernels.available())
def test_the_bad_one_of_several_blocks_is_named(name):
    blocks = [(BlockSpec(Kind.ROWS), torch.randn(3, 4)) for _ in range(3)]
    data, offsets = encode(REFERENCE, blocks)
    bad = replaced(data, offsets, 1, b"\x09")
    assert decode(kernels.load(name), blocks, *bad) == "block 1: form: outside 0..4"
    assert decode(kernels.load(name), blocks, data[:-1], offsets) == (
        f"block 2: offsets {int(offsets[2])}..{len(data)} are not inside the buffer of {len(data) - 1} bytes"
    )
