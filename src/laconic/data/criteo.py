"""Criteo's click logs as tables, from tab-separated text without a header.

A line has a label, 13 integers and 26 hexadecimal categories. Kaggle's set and the Terabyte set
share the order of columns; their names here are ``i1``..``i13`` and ``c1``..``c26``. An empty field
is null. A category of up to 16 hexadecimal digits becomes the integer that it spells.

A *bad line* does not have 40 fields, or has a label other than 0 and 1. It is refused with its line
number, or skipped and counted if that was asked for. A field that is no number is always refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from laconic.data.columns import CategoricalColumns, ColumnSettings, DenseColumns
from laconic.errors import ConfigError, FormatError

__all__ = ["CATEGORICAL", "COLUMNS", "DENSE", "LABEL", "CriteoFile", "hexadecimal"]


_IS_DIGIT = np.zeros(256, dtype=np.bool_)
_IS_DIGIT[list(b"0123456789abcdefABCDEF")] = True


def hexadecimal(values: Any) -> Any:
    """Convert a binary array, whose values have 1 to 16 digits, to int64 (two's complement).

    Null and empty values become null. Raises ValueError with the first text that is no number.
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


LABEL = "label"
DENSE = tuple(f"i{n}" for n in range(1, 14))
CATEGORICAL = tuple(f"c{n}" for n in range(1, 27))
COLUMNS = ColumnSettings(
    label=LABEL,
    dense=tuple(DenseColumns(columns=name, transform="log1p") for name in DENSE),
    categorical=tuple(CategoricalColumns(columns=name) for name in CATEGORICAL),
)
"""Negative integers (there are some in i2) count as 0 in log(1 + x), as is usual."""

_NAMES = (LABEL, *DENSE, *CATEGORICAL)
_BLOCK_BYTES = 8 << 20


class CriteoFile:
    """One file, plain or ``.gz``; ``skipped`` counts the bad lines of the last reading."""

    schema = pa.schema(
        [(LABEL, pa.int8()), *((n, pa.float64()) for n in DENSE), *((n, pa.int64()) for n in CATEGORICAL)]
    )

    def __init__(self, path: Path, *, skip_bad_lines: bool = False) -> None:
        if not path.is_file():
            raise ConfigError(f"{path}: no such file")
        self.path = path
        self.size = path.stat().st_size
        self.skipped = 0
        self._skip = skip_bad_lines
        self._bad: list[tuple[int, int]] = []

    def tables(self) -> Iterator[tuple[Any, int]]:
        """Blocks of lines as Arrow tables, each with the bytes of the file read so far."""
        self.skipped, self._bad = 0, []
        with pa.OSFile(str(self.path)) as raw:
            packed = self.path.suffix == ".gz"
            text = pa.CompressedInputStream(raw, "gzip") if packed else raw
            try:
                yield from self._tables(raw, text)
            except (pa.ArrowInvalid, OSError) as error:
                raise FormatError(self._explain(str(error))) from error

    def _tables(self, raw: Any, text: Any) -> Iterator[tuple[Any, int]]:
        if self._is_empty():
            return
        types = {
            LABEL: pa.int8(),
            **dict.fromkeys(DENSE, pa.float64()),
            **dict.fromkeys(CATEGORICAL, pa.binary()),
        }
        reader = csv.open_csv(
            text,
            read_options=csv.ReadOptions(column_names=_NAMES, use_threads=False, block_size=_BLOCK_BYTES),
            parse_options=csv.ParseOptions(
                delimiter="\t",
                quote_char=False,
                ignore_empty_lines=False,  # they would shift the numbers of lines
                invalid_row_handler=self._wrong_count,
            ),
            convert_options=csv.ConvertOptions(
                column_types=types, null_values=[""], strings_can_be_null=True
            ),
        )
        rows = 0
        for batch in reader:
            table = self._labeled(batch, rows)
            rows += batch.num_rows
            numbers = {name: self._category(table[name], name) for name in CATEGORICAL}
            plain = [table[name] for name in (LABEL, *DENSE)]
            yield pa.table([*plain, *numbers.values()], schema=self.schema), min(raw.tell(), self.size)

    def _is_empty(self) -> bool:
        with pa.input_stream(str(self.path)) as stream:
            text = stream.read(1 << 16)
        fields = text.partition(b"\n")[0].count(b"\t") + 1
        if fields == len(_NAMES) - 1:
            raise FormatError(
                f"{self.path}: line 1: expected 40 fields, got 39; this looks like a test file without labels: "
                "use the training file"
            )
        return not text

    def _wrong_count(self, row: Any) -> str:
        self._bad.append((row.number, row.actual_columns))
        self.skipped += 1
        return "skip" if self._skip else "error"

    def _labeled(self, batch: Any, rows_before: int) -> Any:
        good = pc.fill_null(pc.is_in(batch[LABEL], value_set=pa.array([0, 1], pa.int8())), False)
        wrong = len(good) - pc.sum(good).as_py() if len(good) else 0
        if wrong and not self._skip:
            at = int(np.argmin(good.to_numpy(zero_copy_only=False)))
            label = batch[LABEL][at].as_py()
            raise FormatError(
                f"{self.path}: line {rows_before + at + 1}: expected label 0 or 1, got "
                f"{'nothing' if label is None else label}; skip_bad_lines leaves such lines out"
            )
        self.skipped += wrong
        return batch.filter(good) if wrong else batch

    def _category(self, values: Any, name: str) -> Any:
        try:
            return hexadecimal(values)
        except ValueError as error:
            raise FormatError(
                f"{self.path}: column {name}: expected hexadecimal digits, got {error}"
            ) from None

    def _explain(self, message: str) -> str:
        if self._bad and not self._skip:
            number, fields = self._bad[-1]
            return f"{self.path}: line {number}: expected 40 fields, got {fields}; skip_bad_lines leaves such lines out"
        found = re.search(r"column #(\d+): Row #(\d+): .*invalid value '(.*)'", message, re.DOTALL)
        if found:
            column, line, value = found.groups()
            return f"{self.path}: line {line}: {_NAMES[int(column)]}: expected a number, got {value!r}"
        return f"{self.path}: cannot be read: {message.partition(chr(10))[0]}"
