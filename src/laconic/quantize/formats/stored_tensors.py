"""Files of named tensors that are written piece by piece, hashed as they are written.

The bytes are those that ``safetensors.torch.save_file`` writes. That takes all tensors at once, and
a model in fp32 need not be in memory to be written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.quantize.formats.table_rows import TableRows, pieces

__all__ = ["StoredTensor", "write_tensors"]

_TYPES = {  # in the order of safetensors, which writes the last ones first
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.int64: "I64",
}
_ALIGNMENT = 8  # of the first tensor


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as a file has it."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: Iterable[NDArray[Any]]
    """Its bytes in order, in contiguous arrays; taken once."""

    @classmethod
    def of(cls, tensor: Tensor) -> StoredTensor:
        """Store a tensor that is in memory."""
        return cls(tensor.dtype, tuple(tensor.shape), (_bytes(tensor),))

    @classmethod
    def of_array(cls, array: NDArray[Any], dtype: torch.dtype) -> StoredTensor:
        """Store an array, which may be read-only, as a tensor of its own type."""
        return cls(dtype, array.shape, (array,))

    @classmethod
    def of_table(cls, table: TableRows) -> StoredTensor:
        """Store the bytes of a table's rows: uint8, rows x bytes of a row."""
        shape = (len(table), table.shape[1] * table.dtype.itemsize)
        return cls(torch.uint8, shape, (_bytes(rows_RD) for _, rows_RD in pieces(table)))

    @property
    def nbytes(self) -> int:
        """Bytes of all numbers."""
        return prod(self.shape) * self.dtype.itemsize


def write_tensors(path: Path, tensors: Mapping[str, StoredTensor]) -> str:
    """Write a safetensors file; return its checksum, blake2b of 16 bytes."""
    kinds = list(_TYPES)
    ordered = sorted(tensors.items(), key=lambda item: (-kinds.index(item[1].dtype), item[0]))
    header, end = {}, 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": _TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    digest = blake2b(digest_size=16)
    with path.open("wb") as file:
        for data in (len(text).to_bytes(8, "little"), text):
            digest.update(data)
            file.write(data)
        for name, tensor in ordered:
            written = 0
            for piece in tensor.pieces:
                digest.update(piece.data)
                written += file.write(piece.data)
            assert written == tensor.nbytes, f"{name}: {written} bytes of {tensor.nbytes}"
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().contiguous().flatten().view(torch.uint8).numpy()
    return array
