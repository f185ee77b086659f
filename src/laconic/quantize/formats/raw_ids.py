"""From raw values of a categorical feature to ids, as the model was trained with; without pyarrow.

Shape legend: ``L`` values of one table, bag after bag.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.data.hashing import hash_texts, mix64
from laconic.data.texts import Texts
from laconic.data.value_index import ValueIndex, Values
from laconic.errors import ConfigError
from laconic.quantize.formats.features import TableFeature

__all__ = ["RawIds", "check_vocabulary"]

_HEXADECIMAL = re.compile(rb"[0-9a-fA-F]*")
_DIGITS = 16


class RawIds:
    """Raw values of one table; any number of threads may ask."""

    def __init__(self, table: TableFeature, vocabulary: Values | None) -> None:
        """Sorts the vocabulary, where the table has one: once, for all requests."""
        self._unknown = table.rows - 1
        self._hexadecimal = table.values == "hexadecimal"
        self._index = None if vocabulary is None else ValueIndex(vocabulary)
        self.text = table.values != "integer"
        """Whether values are text rather than integers."""

    def __call__(self, values_L: NDArray[Any]) -> NDArray[np.int64]:
        """Ids of integers (int64) or of texts (objects: bytes); masked ones, and None, are missing.

        ``ConfigError`` for text that should be hexadecimal and is not.
        """
        if self.text:
            missing_L = np.array([value is None for value in values_L], dtype=bool)
            texts = [value or b"" for value in values_L]
            plain: Values = Texts.of(texts)
            if self._hexadecimal:
                missing_L |= np.array([not text for text in texts], dtype=bool)
                plain = _spelled(texts)
        else:
            missing_L = np.ma.getmaskarray(values_L)
            plain = np.ma.getdata(values_L).astype(np.int64)
        if self._index is not None:
            ids_L = self._index.find(plain)
        else:
            words = hash_texts(texts) if isinstance(plain, Texts) else mix64(plain)
            ids_L = (words % np.uint64(self._unknown)).astype(np.int64)
        ids_L[missing_L] = self._unknown
        return ids_L


def check_vocabulary(table: TableFeature, vocabulary: Values | None) -> None:
    """Raise ``ConfigError`` where a table has no vocabulary that fits, or one that it should not have."""
    if (table.raw == "vocabulary") != (vocabulary is not None):
        what = "none" if vocabulary is None else "one"
        raise ConfigError(
            f"table {table.name!r}: expected a vocabulary if raw is 'vocabulary', got {what} for {table.raw!r}"
        )
    if vocabulary is None:
        return
    if isinstance(vocabulary, Texts) != (table.values == "text"):
        kind = "text" if isinstance(vocabulary, Texts) else "integers"
        raise ConfigError(f"table {table.name!r}: expected a vocabulary of {table.values} values, got {kind}")
    if len(vocabulary) != table.rows - 1:
        raise ConfigError(
            f"table {table.name!r}: expected {table.rows - 1} values in its vocabulary, one less than rows, got "
            f"{len(vocabulary)}"
        )


def _spelled(texts: list[bytes]) -> NDArray[np.int64]:
    """Integers by their hexadecimal digits, as two's complement; 0 for what is empty."""
    if max(map(len, texts), default=0) > _DIGITS or not _HEXADECIMAL.fullmatch(b"".join(texts)):
        wrong = (len(text) > _DIGITS or not _HEXADECIMAL.fullmatch(text) for text in texts)
        place = next(place for place, is_wrong in enumerate(wrong) if is_wrong)
        shown = texts[place][:40].decode(errors="replace")
        raise ConfigError(f"value {place}: expected up to {_DIGITS} hexadecimal digits, got {shown!r}")
    return np.array([int(text or b"0", 16) for text in texts], dtype=np.uint64).view(np.int64)
