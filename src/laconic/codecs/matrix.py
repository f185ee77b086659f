"""How a tensor becomes the matrix that kernels see, and a block the bytes that they read.

Kernels work on contiguous float32 in CPU memory. Memory for results comes from numpy, which asks
the system for huge pages where they pay; torch does not. float16 and bfloat16 widen exactly. Any
other type would lose something before the codec's guarantee begins, so it is refused.
"""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.errors import ConfigError

_EXACT = (torch.float32, torch.float16, torch.bfloat16)
_LAZY_BYTES = 32 << 20  # the largest size that malloc ever takes from its own heap


def flat_values(x: Tensor, where: str) -> Tensor:
    """Values of ``x`` in row-major order as float32, detached; a view where possible."""
    if not isinstance(x, Tensor):
        raise ConfigError(
            f"{where}: expected a tensor, got {type(x).__name__}; use torch.from_numpy or torch.tensor"
        )
    if x.dtype not in _EXACT:
        raise ConfigError(
            f"{where}: expected float32, float16 or bfloat16, got {x.dtype}; "
            "convert with x.float() if its rounding is acceptable"
        )
    if not x.is_cpu or x.layout != torch.strided:
        raise ConfigError(
            f"{where}: expected a dense tensor on the CPU, got {x.layout} on {x.device}; use x.to_dense().cpu()"
        )
    if x.requires_grad:
        x = x.detach()
    if x.dtype != torch.float32:
        x = x.to(torch.float32)
    return x.reshape(-1)


def rows_and_cols(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns of a shape.

    The last dimension is a row; a scalar is one row of one value.
    """
    if not shape:
        return 1, 1
    return prod(shape[:-1]), shape[-1]


def checked_shape(shape: tuple[int, ...], where: str) -> tuple[int, ...]:
    """Return the shape as a tuple of ints, none negative."""
    sizes = tuple(int(size) for size in shape)
    if any(size < 0 for size in sizes):
        raise ConfigError(f"{where}: expected a shape without negative sizes, got {sizes}")
    return sizes


def block_bytes(block: Tensor, where: str) -> Tensor:
    """Return the bytes of a block, contiguous."""
    if not isinstance(block, Tensor):
        raise ConfigError(f"{where}: expected a block as a tensor, got {type(block).__name__}")
    if block.dtype != torch.uint8 or block.dim() != 1 or not block.is_cpu:
        raise ConfigError(
            f"{where}: expected a block as a 1-D uint8 tensor on the CPU, "
            f"got {block.dim()}-D {block.dtype} on {block.device}"
        )
    return block.contiguous()


def empty_values(size: int) -> NDArray[np.float32]:
    """Return memory for decoded values that begins at a cache line.

    A store across two cache lines takes twice as long. Memory of torch begins at a line too, but it
    is at another address in every call, and so it is in no cache.
    """
    raw = np.empty(size + 16, np.float32)
    skip = -torch.from_numpy(raw).data_ptr() % 64 // 4  # numpy itself takes a microsecond to tell
    return raw[skip : skip + size]


def compact(buffer: NDArray[np.uint8], size: int) -> Tensor:
    """Return the first ``size`` bytes of a worst-case buffer as a tensor of its own.

    The bytes are copied, because a view would keep the whole buffer alive. A large buffer consists
    of pages of the system, and unused pages take no memory: there the view is the better choice.
    """
    used = buffer[:size]
    return torch.from_numpy(used if len(buffer) >= _LAZY_BYTES else used.copy())


def thread_count(threads: int | None) -> int:
    """How many threads a call may use: what was asked for, or what torch uses."""
    if threads is None:
        return torch.get_num_threads()
    if threads < 1:
        raise ConfigError(f"threads: expected at least 1, got {threads!r}")
    return threads


def expect_buffer(
    where: str, tensor: Tensor, dtype: torch.dtype, size: int, *, exactly: bool = False
) -> None:
    """Raise unless kernels can read or fill this tensor in place."""
    fits = tensor.numel() == size if exactly else tensor.numel() >= size
    flat = tensor.dim() == 1 and tensor.is_contiguous() and tensor.device.type == "cpu"
    if not (fits and flat and tensor.dtype == dtype and not tensor.requires_grad):
        raise ConfigError(
            f"{where}: expected contiguous 1-D {dtype} on the CPU with {'' if exactly else 'at least '}"
            f"{size} entries, got {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}"
        )
