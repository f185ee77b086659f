"""Hexadecimal text to integers, a column at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["hexadecimal"]

_IS_DIGIT = np.zeros(256, dtype=np.bool_)
_IS_DIGIT[list(b"0123456789abcdefABCDEF")] = True


def hexadecimal(values: Any) -> Any:
    """int64 (two's complement) from a binary array of 1 to 16 digits each; null and empty give null.

    Raises ValueError with the text that is none.
    """
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
    digits = _content(values, int(lengths.sum()))
    if not np.isin(lengths, (0, 8)).all() or not _IS_DIGIT[digits].all():
        return _one_by_one(values)
    out = np.zeros(lengths.size, dtype=np.int64)
    out[lengths == 8] = _eight_digits(digits.view(">u8").astype(np.uint64))
    return pa.array(out, mask=lengths == 0)


def _content(values: Any, size: int) -> NDArray[np.uint8]:
    """Find the bytes of all values, one after the other (null values have none)."""
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)
    data = values.buffers()[2]
    if not size or data is None:
        return np.empty(0, dtype=np.uint8)
    begin = int(offsets[values.offset])
    return np.frombuffer(data, dtype=np.uint8)[begin : begin + size]


def _eight_digits(text: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Eight ASCII digits in a word, the first in its top byte, to the number they spell."""
    low, letter = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
    x = (text & low) + ((text >> np.uint64(6)) & letter) * np.uint64(9)  # a letter is 9 + its low bits
    x = (x | (x >> np.uint64(4))) & np.uint64(0x00FF00FF00FF00FF)
    x = (x | (x >> np.uint64(8))) & np.uint64(0x0000FFFF0000FFFF)
    number: NDArray[np.uint64] = (x | (x >> np.uint64(16))) & np.uint64(0xFFFFFFFF)
    return number


def _one_by_one(values: Any) -> Any:
    encoded = values.dictionary_encode()
    words = []
    for text in encoded.dictionary.to_pylist():
        if len(text) > 16 or not _IS_DIGIT[list(text)].all():
            raise ValueError(repr(text.decode(errors="replace")))
        words.append(int(text, 16) if text else None)
    signed = pa.array([w if w is None or w < 1 << 63 else w - (1 << 64) for w in words], pa.int64())
    return signed.take(encoded.indices)
