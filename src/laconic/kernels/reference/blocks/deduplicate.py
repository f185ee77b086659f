"""Deduplicate: equal rows are found once, over the whole block.

Distinct rows are numbered. Those that occur more than once come first, by falling count (all counts
from 255 on are equal) and then by first occurrence; after them the single ones, as they come.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.kernels.reference.byte_io import to_bytes

_COUNT_CLIP = 255


@dataclass(frozen=True, slots=True)
class Distinct:
    """Distinct rows of ``R`` rows, by their new numbers ``U``."""

    repeated: int
    """Rows that occur more than once."""
    single: int
    """Rows that occur once."""
    first_U: Tensor
    """Where each distinct row occurs first."""
    flags_R: Tensor
    """1 for single rows."""
    indices: Tensor
    """Numbers of the rows that are not single."""


def find_distinct(rows_RC: Tensor) -> Distinct:
    """Find the distinct rows of a matrix of codes, and number them."""
    rows = len(rows_RC)
    data = to_bytes(rows_RC)
    size = len(data) // rows
    places: dict[bytes, list[int]] = {}
    for i in range(rows):
        places.setdefault(data[i * size : (i + 1) * size], []).append(i)
    ordered = sorted(places.values(), key=lambda where: -min(len(where), _COUNT_CLIP))
    number_R = [0] * rows
    for number, where in enumerate(ordered):
        for i in where:
            number_R[i] = number
    repeated = sum(len(where) > 1 for where in ordered)
    numbers = torch.tensor(number_R)
    return Distinct(
        repeated,
        len(ordered) - repeated,
        torch.tensor([where[0] for where in ordered]),
        (numbers >= repeated).to(torch.int64),
        numbers[numbers < repeated],
    )
