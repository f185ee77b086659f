"""From values to ids."""

from __future__ import annotations

from collections import Counter as PlainCounter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.data.criteo import hexadecimal
from laconic.data.hashing import Texts
from laconic.data.raw_source import ValueIndex
from laconic.data.vocabulary import Counter, Hashed, Vocabulary, read_vocabulary
from laconic.errors import ConfigError
from tests.cases import each


def test_hashes_stay_what_they_are():
    """Trained models depend on these numbers."""
    integers = pa.array([0, 1, 2, -1, 123456789, None], pa.int64())
    text = pa.array(["", "a", "b", "laconic", "\u00e9", None])
    assert Hashed(1000)(integers).tolist() == [0, 789, 730, 67, 584, 1000]
    assert Hashed(1000)(text).tolist() == [756, 928, 668, 534, 963, 1000]


def test_the_type_of_an_integer_does_not_change_its_hash():
    for kind in (pa.int8(), pa.uint16(), pa.int32(), pa.uint64()):
        assert Hashed(1000)(pa.array([1, 2], kind)).tolist() == Hashed(1000)(pa.array([1, 2])).tolist()


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))), st.integers(1, 100))
def test_every_hash_is_a_row_and_only_null_is_the_last(values, buckets):
    ids = Hashed(buckets)(pa.array(values, pa.int64()))
    assert all(0 <= number < buckets or value is None for number, value in zip(ids, values, strict=True))
    assert all((number == buckets) == (value is None) for number, value in zip(ids, values, strict=True))


VALUES = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(-5, 5))),
    st.lists(st.one_of(st.none(), st.text("ab", max_size=2))),
)


@given(st.lists(VALUES, max_size=4).map(lambda parts: [p for p in parts if p]), st.integers(1, 3))
def test_a_vocabulary_keeps_what_is_frequent_most_frequent_first(parts, min_count):
    kind = pa.string() if any(isinstance(value, str) for part in parts for value in part) else pa.int64()
    parts = [[v for v in part if v is None or isinstance(v, str) == (kind == pa.string())] for part in parts]
    counter = Counter()
    for part in parts:
        counter.add(pa.array(part, kind))
        counter._merge()
    plain = PlainCounter(value for part in parts for value in part if value is not None)
    expected = sorted((v for v, n in plain.items() if n >= min_count), key=lambda v: (-plain[v], v))
    kept = counter.most_frequent(min_count)
    assert kept["value"].to_pylist() == expected
    assert kept["count"].to_pylist() == [plain[value] for value in expected]
    vocabulary = Vocabulary(kept["value"].combine_chunks())
    assert vocabulary.rows == len(expected) + 1
    for part in parts:
        wanted = [expected.index(value) if value in expected else len(expected) for value in part]
        assert vocabulary(pa.array(part, kind)).tolist() == wanted


def test_a_text_vocabulary_is_hashed_once_and_then_only_what_is_asked(monkeypatch):
    """Else preparing takes time in the square of the data."""
    hashed = []

    def count(texts, hashes=Texts.hashes):
        hashed.append(len(texts))
        return hashes(texts)

    def forbidden(*_, **__):
        raise AssertionError("it hashes the whole vocabulary at every call")

    monkeypatch.setattr(Texts, "hashes", count)
    monkeypatch.setattr("laconic.data.vocabulary.pc.index_in", forbidden)
    vocabulary = Vocabulary(pa.array([f"word {n}" for n in range(1000)]))
    for _ in range(3):
        assert vocabulary(pa.array(["word 7", "x", None, "word 7"])).tolist() == [7, 1000, 1000, 7]
    assert hashed == [1000, 2, 2, 2]


@given(st.lists(st.text(max_size=5), unique=True), st.lists(st.text(max_size=5)))
def test_texts_are_found_by_their_bytes_even_where_all_hashes_are_equal(known, asked):
    known, asked = [t.encode() for t in known], [t.encode() for t in asked]
    expected = [known.index(text) if text in known else len(known) for text in asked]
    assert ValueIndex(Texts.of(known)).find(Texts.of(asked)).tolist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Texts, "hashes", lambda texts: np.zeros(len(texts), np.uint64))
        assert ValueIndex(Texts.of(known)).find(Texts.of(asked)).tolist() == expected


def test_texts_of_many_pieces_hash_as_each_by_itself(monkeypatch):
    monkeypatch.setattr("laconic.data.hashing._PIECE_BYTES", 10)
    texts = [b"", b"a", b"laconic " * 5, b"", b"b" * 9, b"a\0", b"\0a"]
    together = Texts.of(texts).hashes().tolist()
    assert together == [Texts.of([text]).hashes()[0] for text in texts]
    assert len(set(together)) == 6
    sliced = pa.array([text.decode() for text in texts], pa.large_string()).slice(2, 3)
    assert Texts.of_arrow(sliced).hashes().tolist() == together[2:5]


def test_vocabulary_files_are_text_or_parquet(tmp_path):
    (tmp_path / "v.txt").write_text("7\n-3\n")
    pq.write_table(pa.table({"value": [7, -3], "count": [2, 1]}), tmp_path / "v.parquet")
    for name in ("v.txt", "v.parquet"):
        assert read_vocabulary(tmp_path / name, text=False)(pa.array([-3, 7, 1, None])).tolist() == [
            1,
            0,
            2,
            2,
        ]


def test_vocabulary_files_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "v.txt"
    with pytest.raises(ConfigError, match=r"v\.txt: no such vocabulary file$"):
        read_vocabulary(path, text=True)
    path.write_text("a\nb\na\n")
    with pytest.raises(ConfigError, match=r"v\.txt: expected distinct values, got 1 repeated ones$"):
        read_vocabulary(path, text=True)
    with pytest.raises(ConfigError, match=r"v\.txt: expected integers as in the column, got .*'a'"):
        read_vocabulary(path, text=False)


@given(st.lists(st.one_of(st.none(), st.text("0123456789abcdefABCDEF", max_size=16))))
def test_hexadecimal_text_is_the_number_it_spells(texts):
    for case in (texts, [t and t.zfill(8)[:8] for t in texts]):
        array = pa.array([t if t is None else t.encode() for t in case], pa.binary())
        got = hexadecimal(array).to_pylist()
        assert [n if n is None else n % 2**64 for n in got] == [int(t, 16) if t else None for t in case]
        assert hexadecimal(array.slice(1)).to_pylist() == got[1:]


@each("text", [b"0000000g", b"xyz", b"12345678901234567", b"0x12", b"+1234567"])
def test_other_text_is_not_hexadecimal(text):
    with pytest.raises(ValueError, match=text.decode().replace("+", r"\+")):
        hexadecimal(pa.array([b"00000000", text], pa.binary()))
