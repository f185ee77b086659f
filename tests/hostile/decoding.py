"""Bytes to values through the kernels of one name, whatever the bytes."""

from __future__ import annotations

import torch
from torch import Tensor

from laconic import kernels
from laconic.errors import FormatError
from laconic.kernels.blocks import BlockSpec, BlockTable, Kind

NAMES = kernels.available()


def as_tensor(block: bytes) -> Tensor:
    return (
        torch.frombuffer(bytearray(block), dtype=torch.uint8) if block else torch.empty(0, dtype=torch.uint8)
    )


def decode_block(name: str, kind: Kind, shape: tuple[int, int], block: bytes, threads: int = 1) -> Tensor:
    table = BlockTable.of([(BlockSpec(kind), *shape)])
    out = torch.full((shape[0] * shape[1],), -7.5)
    offsets = torch.tensor([0, len(block)])
    kernels.load(name).decode_blocks(table, as_tensor(block), offsets, out, threads)
    return out


def decode_ids(name: str, count: int, block: bytes) -> Tensor:
    out = torch.full((count,), -7)
    kernels.load(name).decode_ids(
        torch.tensor([count]), as_tensor(block), torch.tensor([0, len(block)]), out, 1
    )
    return out


def encode_block(name: str, spec: BlockSpec, x: Tensor, threads: int = 1) -> bytes:
    table = BlockTable.of([(spec, *x.shape)])
    implementation = kernels.load(name)
    out = torch.empty(implementation.max_bytes(table), dtype=torch.uint8)
    offsets = torch.empty(2, dtype=torch.int64)
    implementation.encode_blocks(table, x.reshape(-1), out, offsets, threads)
    return out[: int(offsets[1])].numpy().tobytes()


def encode_ids(name: str, ids: Tensor) -> bytes:
    out = torch.empty(8 * len(ids) + 16, dtype=torch.uint8)
    offsets = torch.empty(2, dtype=torch.int64)
    kernels.load(name).encode_ids(torch.tensor([len(ids)]), ids, out, offsets, 1)
    return out[: int(offsets[1])].numpy().tobytes()


def outcome(decode, *arguments) -> bytes | str:
    """Bits of the values, or the text of the refusal; any other exception is a failure."""
    try:
        return decode(*arguments).numpy().tobytes()
    except FormatError as error:
        return str(error)
