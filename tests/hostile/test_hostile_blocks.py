"""Blocks that lie, written by hand: every field that can be wrong is refused by its name."""

from __future__ import annotations

import struct

import pytest
import torch

from laconic import kernels
from laconic.errors import FormatError
from laconic.kernels.blocks import BlockSpec, BlockTable, Kind
from tests.cases import each
from tests.hostile.block_parts import (
    NONE,
    SIX_STREAMS,
    SMALL,
    ZEROS,
    coded,
    huffman,
    ids_block,
    lossless_block,
    packed,
    rows_block,
    sc24_block,
    shared,
    signed,
    varint,
)
from tests.hostile.decoding import NAMES, as_tensor, decode_block, decode_ids, outcome
from tests.hostile.ids_lies import IDS_LIES
from tests.hostile.lossless_lies import LOSSLESS_LIES, SOME
from tests.hostile.rows_lies import MANY, ROWS_LIES, many_outliers
from tests.hostile.sc24_lies import SC24_LIES

every_kernels = pytest.mark.parametrize("name", NAMES)

# bytes of a 2 x 3 block
CASTS = {Kind.FLOAT32: 24, Kind.FLOAT16: 12, Kind.BFLOAT16: 12, Kind.INT8: 22, Kind.INT4: 12}


def assert_names(error: pytest.ExceptionInfo[FormatError], field: str) -> None:
    assert str(error.value).split(":")[0] == field


@every_kernels
def test_the_blocks_that_the_lies_were_made_from_are_valid(name):
    references = varint(1) + varint(1) + b"\x04\x02" + packed(2, 0)
    for shape, block in [
        (SMALL, rows_block()),
        (SMALL, huffman(coded(b"\0"))),
        (SMALL, huffman(coded(b"\0", kind=2 | 8 << 4, low=bytes(6)))),
        ((1, 384), huffman(coded(SIX_STREAMS))),
        ((3, 3), shared(references, codes=packed(6, 2))),
    ]:
        assert decode_block(name, Kind.ROWS, shape, block).tolist() == [0.0] * (shape[0] * shape[1])
    for shape, block in [
        (SMALL, sc24_block(rows=ZEROS + b"\1\1")),
        ((2048, 1), sc24_block(rows=b"\0\0" + b"\1\xff" * 8 + b"\1\7")),
    ]:
        assert decode_block(name, Kind.VECTOR_LZ, shape, block).tolist() == [0.0] * (shape[0] * shape[1])
    assert (
        decode_block(name, Kind.HUFFMAN, SMALL, sc24_block(form=6, rows=coded(b"\0"))).tolist()
        == [-128.0] * 6
    )
    ends = rows_block(outliers=varint(2) + varint(1) + signed(-128) + varint(3) + signed(127))
    assert decode_block(name, Kind.ROWS, SMALL, ends).tolist() == [0, -128, 0, 0, 0, 127]
    for smallest in (-32768, -129, -128, 124, 127, 128, 32764):
        beyond = rows_block(smallest=signed(smallest), codes=b"\x08\xff\x0f")
        assert decode_block(name, Kind.ROWS, SMALL, beyond).tolist() == [smallest + 3.0] * 6
    every_second = many_outliers(b"\x04" + b"\xff" * 3, packed(20, 0))
    assert decode_block(name, Kind.ROWS, MANY, every_second).tolist() == [0.0] * 40
    for shape, block in [
        (SMALL, lossless_block()),
        (SMALL, lossless_block(exponents=coded(b"\0"))),
        ((1, 384), lossless_block(values=384, exponents=coded(SIX_STREAMS))),
        (SMALL, lossless_block(form=3, flags=SOME, values=3)),
        (
            SMALL,
            lossless_block(form=3, flags=b"\x04\xd5", values=3),
        ),  # what is past the values counts for nothing
        (SMALL, lossless_block(form=3, flags=packed(6, 0), values=0)),
    ]:
        assert decode_block(name, Kind.LOSSLESS, shape, block).tolist() == [0.0] * (shape[0] * shape[1])
    below = lossless_block(top=1, exponents=b"\x20" + bytes([1, 2, 3, 0, 255, 129]))  # modulo 256
    powers = [0.0, float("inf"), 2.0**127, 2.0**-126, 2.0**-125, 2.0]
    assert decode_block(name, Kind.LOSSLESS, SMALL, below).tolist() == powers
    assert decode_ids(name, 2, ids_block(count=varint(2), classes=packed(1, 1))).tolist() == [0, 0]
    highest = ids_block(count=varint(2), classes=b"\x20\xff", raw=b"\xff" * 8)
    assert decode_ids(name, 2, highest).tolist() == [0, -1]


@every_kernels
@each("lie", ROWS_LIES)
def test_a_lie_in_bounded_rows_is_refused_by_the_name_of_its_field(name, lie):
    field, shape, block = ROWS_LIES[lie]
    with pytest.raises(FormatError) as error:
        decode_block(name, Kind.ROWS, shape, block)
    assert_names(error, field)


@every_kernels
@each("kind", [Kind.VECTOR_LZ, Kind.HUFFMAN, Kind.HYBRID])
@each("lie", SC24_LIES)
def test_a_lie_in_an_sc24_block_is_refused_by_the_name_of_its_field(name, kind, lie):
    field, shape, block = SC24_LIES[lie]
    with pytest.raises(FormatError) as error:
        decode_block(name, kind, shape, block)
    assert_names(error, field)


@every_kernels
@each("lie", LOSSLESS_LIES)
def test_a_lie_in_a_lossless_block_is_refused_by_the_name_of_its_field(name, lie):
    field, shape, block = LOSSLESS_LIES[lie]
    with pytest.raises(FormatError) as error:
        decode_block(name, Kind.LOSSLESS, shape, block)
    assert_names(error, field)


@every_kernels
@each("lie", IDS_LIES)
def test_a_lie_in_a_list_of_ids_is_refused_by_the_name_of_its_field(name, lie):
    field, count, block = IDS_LIES[lie]
    with pytest.raises(FormatError) as error:
        decode_ids(name, count, block)
    assert_names(error, field)


@every_kernels
@each("kind", CASTS)
def test_a_cast_of_any_other_size_is_refused(name, kind):
    decode_block(name, kind, SMALL, bytes(CASTS[kind]))
    for size in (0, 1, CASTS[kind] - 1, CASTS[kind] + 1):
        with pytest.raises(FormatError, match=f"^block: expected {CASTS[kind]} bytes .* got {size}$"):
            decode_block(name, kind, SMALL, bytes(size))
    with pytest.raises(FormatError, match=r"^block: expected 0 bytes"):
        decode_block(name, kind, (3, 0), b"\0")


@every_kernels
@each(
    "offsets",
    [
        (-1, 17, 17),
        (0, 18, 17),
        (0, 17, 18),
        (1, 0, 17),
        (0, -(2**63), 17),
        (0, 17, 2**63 - 1),
        (2**63 - 1, 17, 17),
    ],
)
def test_offsets_that_leave_the_buffer_are_refused(name, offsets):
    table = BlockTable.of([(BlockSpec(Kind.ROWS), 1, 4), (BlockSpec(Kind.ROWS), 0, 4)])
    block, out = as_tensor(b"\1" + bytes(16)), torch.empty(4)
    implementation = kernels.load(name)
    implementation.decode_blocks(table, block, torch.tensor([0, 17, 17]), out, 1)
    with pytest.raises(FormatError, match=r"^block [01]: offsets .* are not inside the buffer of 17 bytes"):
        implementation.decode_blocks(table, block, torch.tensor(offsets), out, 1)
    with pytest.raises(FormatError, match=r"^block [01]: offsets .* are not inside the buffer of 17 bytes"):
        implementation.decode_ids(
            torch.tensor([4, 0]), block, torch.tensor(offsets), torch.empty(4).long(), 1
        )


@every_kernels
def test_a_bad_block_among_good_ones_is_named(name):
    shapes = [(2, 3)] * 3
    table = BlockTable.of([(BlockSpec(Kind.ROWS), *shape) for shape in shapes])
    blocks = [rows_block(), rows_block(base=signed(2**22 + 1)), rows_block()]
    ends = [sum(map(len, blocks[:i])) for i in range(4)]
    with pytest.raises(FormatError, match=r"^block 1: base code: "):
        kernels.load(name).decode_blocks(
            table, as_tensor(b"".join(blocks)), torch.tensor(ends), torch.empty(18), 1
        )


@every_kernels
@each("threads", [1, 2])
def test_a_large_shape_with_a_short_block_is_refused(name, threads):
    shape = (1 << 16, 16)
    n = shape[0] * shape[1]
    many = varint(n)
    for field, block in [
        ("stored values", b"\1" + bytes(100)),
        ("packed values", rows_block(codes=b"\x04" + bytes(100))),
        ("chunk sizes", huffman(coded(b"\0" * 8), outliers=b"", patches=b"")),
        ("outliers", rows_block(codes=packed(n, 0), outliers=many)),
        ("patches", rows_block(codes=packed(n, 0), patches=many)),
        ("packed values", shared(varint(1) + varint(0) + b"\x04")),
        ("packed values", shared(varint(1) + varint(1) + b"\x04")),
        ("packed values", shared(varint(60000) + varint(0) + packed(1 << 16, 0), codes=b"\x04" + bytes(100))),
    ]:
        with pytest.raises(FormatError) as error:
            decode_block(name, Kind.ROWS, shape, block, threads)
        assert_names(error, field)
    for field, block in [
        ("stored values", b"\1" + bytes(100)),
        ("signs and mantissas", b"\2" + bytes(100)),
        ("packed values", b"\3\4" + bytes(100)),
        ("signs and mantissas", b"\3\4" + b"\xff" * (n // 8 + 100)),
        ("chunk sizes", b"\2" + bytes(3 * n + 1) + coded(b"\0" * 8)),
    ]:
        with pytest.raises(FormatError) as error:
            decode_block(name, Kind.LOSSLESS, shape, block, threads)
        assert_names(error, field)


@every_kernels
@each("step", [1.0, 3.4e38, 1e-45])
@each("base", [2**22, -(2**22), 0])
def test_the_farthest_fields_that_are_allowed_decode(name, step, base):
    block = rows_block(
        step=struct.pack("<f", step),
        base=signed(base),
        smallest=signed(32767),
        codes=b"\x40" + b"\xff\xff" * 6,
        patches=varint(1) + NONE + struct.pack("<f", float("nan")),
    )
    y = decode_block(name, Kind.ROWS, SMALL, block).double()
    wrapped = (32767 + 65535 + 2**15) % 2**16 - 2**15
    assert y[0].isnan()
    assert y[1:].tolist() == [(torch.tensor(wrapped + base).float() * torch.tensor(step)).item()] * 5


def test_all_kernels_refuse_a_lie_in_the_same_words():
    calls = [
        *((decode_block, Kind.ROWS, shape, block) for _, shape, block in ROWS_LIES.values()),
        *(
            (decode_block, kind, shape, block)
            for kind in (Kind.VECTOR_LZ, Kind.HUFFMAN, Kind.HYBRID)
            for _, shape, block in SC24_LIES.values()
        ),
        *((decode_block, Kind.LOSSLESS, shape, block) for _, shape, block in LOSSLESS_LIES.values()),
        *((decode_block, kind, SMALL, bytes(size - 1)) for kind, size in CASTS.items()),
        *((decode_ids, count, block) for _, count, block in IDS_LIES.values()),
    ]
    for decode, *arguments in calls:
        assert len({outcome(decode, name, *arguments) for name in NAMES}) == 1, arguments
