"""Selections come back as they were or are refused; thresholds send what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.codecs import Bounded, Cast, IdList
from laconic.codecs.bit_selection import BitSelection
from laconic.codecs.selection import Selection
from laconic.codecs.threshold import Threshold
from laconic.errors import ConfigError, FormatError
from tests.cases import each


def places_of(*places: int) -> np.ndarray:
    return np.array(places, np.int64)


def block_of(*places: int) -> np.ndarray:
    return IdList().encode(torch.tensor(places)).numpy()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32), st.integers(0, 30), st.integers(0, 70), st.sampled_from([0.0, 0.02, 0.2, 0.9, 1.0])
)
def test_a_selection_survives_its_bytes_and_values_their_way(seed, rows, cols, share):
    rng = np.random.default_rng(seed)
    x_BD = rng.standard_normal((rows, cols)).astype(np.float32)
    mask_DB = rng.random((cols, rows)) < share
    selection = Selection(rows, cols, np.flatnonzero(mask_DB))
    again = Selection.decode(selection.encode(), rows, cols, selection.count)
    values_K = again.take(x_BD)
    assert values_K.tobytes() == x_BD.T[mask_DB].tobytes()
    assert again.spread(values_K).tobytes() == np.where(mask_DB.T, x_BD, np.float32(0)).tobytes()


@each("rows", [0, 1, 2, 9])
@each("cols", [0, 1, 5])
@each("share", [0.4, None])
def test_entries_are_taken_from_and_put_into_some_columns_of_a_larger_matrix(rows, cols, share):
    rng = np.random.default_rng(rows + cols)
    whole_BN = rng.standard_normal((rows, cols + 7)).astype(np.float32)
    x_BD, before_BN = whole_BN[:, 3 : 3 + cols], whole_BN.copy()
    mask_DB = np.ones((cols, rows), bool) if share is None else rng.random((cols, rows)) < share
    selection = Selection(rows, cols, None if share is None else np.flatnonzero(mask_DB))
    values_K = selection.take(x_BD).copy()
    spread_BD = np.where(mask_DB.T, x_BD, np.float32(0))
    assert selection.spread(values_K).tobytes() == spread_BD.tobytes()
    selection.add_to(values_K, x_BD)
    assert (x_BD == before_BN[:, 3 : 3 + cols] + spread_BD).all()
    selection.spread_into(values_K, x_BD)
    assert x_BD.tobytes() == spread_BD.tobytes()
    for others in (np.s_[:, :3], np.s_[:, 3 + cols :]):
        assert (whole_BN[others] == before_BN[others]).all()


def test_entries_are_taken_from_a_matrix_without_rows_in_memory():
    x_BD = np.broadcast_to(np.float32(3), (4, 6))  # the gradient of a sum
    assert Selection(4, 6, places_of(0, 5, 23)).take(x_BD).tolist() == [3, 3, 3]
    turned_BD = np.arange(24, dtype=np.float32).reshape(6, 4).T
    assert Selection(4, 6, places_of(0, 5, 23)).take(turned_BD).tolist() == [0, 5, 23]


def test_a_selection_of_everything_has_no_bytes_and_keeps_every_bit():
    x_BD = np.array([[-0.0, np.nan], [np.inf, 1e-45]], np.float32)
    selection = Selection(2, 2, None)
    assert len(selection.encode()) == 0
    again = Selection.decode(selection.encode(), 2, 2, 4)
    assert again.places_K is None
    assert again.spread(again.take(x_BD)).tobytes() == x_BD.tobytes()


def test_neurons_that_are_kept_more_often_make_masks_cheaper_than_their_entropy():
    rng = np.random.default_rng(1)
    share_D = np.array([0.002, 0.2] * 128)
    mask_BD = rng.random((1024, 256)) < share_D
    selection = Selection(1024, 256, np.flatnonzero(mask_BD.T))
    bits = 8 * len(selection.encode()) / mask_BD.size
    p = mask_BD.mean()
    entropy = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
    by_column = -(share_D * np.log2(share_D) + (1 - share_D) * np.log2(1 - share_D)).mean()
    assert by_column < bits < 0.85 * entropy


@each(
    ("block", "count", "text"),
    [
        (block_of(0, 1, 6), 3, "expected ascending places below 6, got others"),
        (block_of(-1, 1, 2), 3, "expected ascending places below 6, got others"),
        (block_of(2, 1, 3), 3, "expected ascending places below 6, got others"),
        (block_of(1, 1, 3), 3, "expected ascending places below 6, got others"),
        (block_of(1, 3), 3, "count: the block has 2 ids, expected 3"),
        (block_of(1, 3)[:1], 2, "form: needs 1 bytes, the block has 0 left"),
        (np.empty(0, np.uint8), 3, "3 of 6 entries travel, but no block says which"),
        (block_of(1, 3), 7, "expected 0 to 6 entries, got 7"),
        (block_of(1, 3), -1, "expected 0 to 6 entries, got -1"),
    ],
)
def test_bytes_that_lie_are_refused(block, count, text):
    with pytest.raises(FormatError, match=text):
        Selection.decode(block, 2, 3, count)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 30), st.integers(0, 70), st.sampled_from([0.02, 0.3, 0.9]))
def test_bits_choose_what_places_do(seed, rows, cols, keep):
    x_BD = np.random.default_rng(seed).standard_normal((rows, cols)).astype(np.float32)
    whole, half = Threshold(keep), Threshold(keep, mask="bits")
    places, values_K = whole.select(x_BD)
    bits, again_K = half.select(x_BD)
    arrived = half.read_selection(bits.encode(), rows, cols, bits.count)
    assert isinstance(arrived, BitSelection)
    assert arrived.spread(again_K).tobytes() == places.spread(values_K).tobytes()
    gradient_BD = np.broadcast_to(np.float32(3), (rows, cols))  # that of a sum has no rows in memory
    assert arrived.take(gradient_BD).tolist() == [3] * places.count
    turned_BD = x_BD.copy(order="F")
    assert arrived.take(turned_BD).tobytes() == again_K.tobytes()
    arrived.add_to(-again_K, x_BD)
    assert not arrived.take(x_BD).any()


def test_the_documented_bits_are_those():
    mask_BD = np.array([[0, 1, 1, 0, 0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0, 0, 1, 0, 0]], np.float32)
    selection, values_K = Threshold(0.9, mask="bits").select(np.arange(1, 11, dtype=np.float32) * mask_BD)
    assert selection.encode().tobytes().hex(" ") == "06 02 81 00"
    assert values_K.tolist() == [2, 3, 10, 1, 8]


@each(
    ("block", "count", "text"),
    [
        ([6, 2, 0x81], 5, "expected 4 bytes for 2 x 10 bits, got 3"),
        ([6, 2, 0x81, 0, 0], 5, "expected 4 bytes for 2 x 10 bits, got 5"),
        ([6, 2, 0x81, 0], 4, "expected 4 bits that are set, got 5"),
        ([6, 4, 0x81, 0], 5, "set past the last column"),
    ],
)
def test_bits_that_lie_are_refused(block, count, text):
    with pytest.raises(FormatError, match=text):
        BitSelection.decode(np.array(block, np.uint8), 2, 10, count)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=40), st.integers(0, 12))
def test_any_bytes_decode_or_raise(data, count):
    block = np.frombuffer(data, np.uint8).copy()
    try:
        selection = Selection.decode(block, 3, 4, count)
    except FormatError:
        return
    assert selection.count == count
    assert selection.spread(np.ones(count, np.float32)).sum() == count


@each(("values", "gradients"), [(None, None), (Cast("fp16"), None), (Bounded(1e-3), Bounded())])
@each("count", [0, 1, 1000])
def test_values_come_back_as_their_codec_says(values, gradients, count):
    threshold = Threshold(values=values, gradients=gradients)
    x = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    arrived = threshold.decode_values(threshold.encode_values(x), count)
    returned = threshold.decode_gradients(threshold.encode_gradients(x, 5), count)
    for codec, back in ((values, arrived), (gradients, returned)):
        if codec is None or not count:
            assert back.tobytes() == x.tobytes()
        else:
            assert torch.equal(
                torch.from_numpy(back), codec.decode(codec.encode(torch.from_numpy(x)), (count,))
            )


def test_float32_of_the_wrong_length_is_refused():
    with pytest.raises(FormatError, match="expected 8 bytes for 2 values, got 4"):
        Threshold(values=None).decode_values(np.zeros(4, np.uint8), 2)


def test_unbiased_gradients_are_rounded_otherwise_at_every_seed():
    threshold, x = Threshold(), np.random.default_rng(0).standard_normal(500).astype(np.float32)
    first, second = (threshold.encode_gradients(x, seed).tobytes() for seed in (1, 2))
    assert first != second
    assert first == threshold.encode_gradients(x, 1).tobytes()


@each(
    ("setting", "text"),
    [
        ({"keep": 0}, "threshold.keep: expected a share above 0 and at most 1, got 0"),
        ({"keep": 1.01}, "threshold.keep: expected a share above 0 and at most 1, got 1.01"),
        ({"keep": float("nan")}, "threshold.keep: expected a share above 0 and at most 1, got nan"),
        ({"keep": True}, "threshold.keep: expected a share above 0 and at most 1, got True"),
        ({"method": "gauss"}, r"threshold.method: no such method 'gauss' \(known: laplace, topk\)"),
        ({"mask": "runs"}, r"threshold.mask: no such mask 'runs' \(known: coded, bits\)"),
        ({"values": IdList()}, "threshold.values: expected a codec of float32 or None, got IdList"),
        ({"gradients": "fp16"}, "threshold.gradients: expected a codec of float32 or None, got 'fp16'"),
    ],
)
def test_wrong_settings_are_refused_with_their_value(setting, text):
    with pytest.raises(ConfigError, match=text):
        Threshold(**setting)
