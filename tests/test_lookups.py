"""Lookups in the shapes of batches: one id each, bags, weights, names, jagged tensors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.lookups import Lookups


@dataclass
class Jagged:
    """Shaped like TorchRec's KeyedJaggedTensor."""

    by_key: dict[str, list[list[int]]]
    weights: Tensor | None = None

    def keys(self) -> list[str]:
        return list(self.by_key)

    def values(self) -> Tensor:
        return torch.tensor([i for bags in self.by_key.values() for bag in bags for i in bag])

    def lengths(self) -> Tensor:
        return torch.tensor([len(bag) for bags in self.by_key.values() for bag in bags], dtype=torch.int32)

    def weights_or_none(self) -> Tensor | None:
        return self.weights


def bags_of(lookups: Lookups) -> list[list[list[int]]]:
    """Bags of all samples, table by table."""
    found = []
    for t in range(lookups.tables):
        ids_L, offsets = lookups.table(t)
        found.append([ids_L[i:j].tolist() for i, j in pairwise(offsets.tolist())])
    return found


def test_single_ids_by_name_are_those_of_a_tensor():
    ids = {"user": torch.tensor([7, 2], dtype=torch.int32), "item": torch.tensor([0, 5])}
    named, plain = Lookups.of(ids), Lookups.single(torch.tensor([[7, 2], [0, 5]]))
    assert named.names == ("user", "item")
    assert torch.equal(named.ids_L, plain.ids_L)
    assert torch.equal(named.offsets, plain.offsets)


def test_bags_come_as_pairs_as_jagged_tensors_and_as_keyed_ones():
    bags = {"a": [[1, 2], [], [3]], "b": [[4], [5, 6, 7], []]}
    pairs = {name: Jagged({name: lists}) for name, lists in bags.items()}
    made = Lookups.bags(
        {n: (j.values(), torch.tensor([0, *j.lengths().cumsum(0)])) for n, j in pairs.items()}
    )
    assert bags_of(made) == [*bags.values()]
    nested = {
        name: torch.nested.nested_tensor(
            [torch.tensor(b, dtype=torch.int64) for b in lists], layout=torch.jagged
        )
        for name, lists in bags.items()
    }
    assert bags_of(Lookups.of(nested)) == [*bags.values()]
    keyed = Lookups.of(Jagged(bags, torch.arange(7.0)))
    assert bags_of(keyed) == [*bags.values()]
    assert keyed.names == ("a", "b")
    assert torch.equal(keyed.weights_L, torch.arange(7.0))


def test_tables_are_found_by_name_in_any_order_and_others_are_left_out():
    lookups = Lookups.of(Jagged({"a": [[1, 2], []], "b": [[3], [4]], "c": [[5], [6, 7]]}, torch.arange(7.0)))
    chosen = lookups.for_tables(["c", "a"])
    assert bags_of(chosen) == [[[5], [6, 7]], [[1, 2], []]]
    assert chosen.weights_L.tolist() == [4.0, 5.0, 6.0, 0.0, 1.0]
    assert lookups.for_tables(["a", "b", "c"]) is lookups
    with pytest.raises(ConfigError, match=re.escape("lookups: no ids of table 'd' (got: a, b, c)")):
        lookups.for_tables(["a", "d"])


def test_weights_of_some_tables_leave_those_of_others_at_one():
    pair = (torch.tensor([1, 2]), torch.tensor([0, 1, 2]))
    made = Lookups.bags({"a": pair, "b": pair}, weights={"b": torch.tensor([0.5, 2.0])})
    assert made.weights_L.tolist() == [1.0, 1.0, 0.5, 2.0]
    joined = Lookups.joined([made, made])
    assert joined.weights_L.tolist() == [1.0, 1.0, 1.0, 1.0, 0.5, 2.0, 0.5, 2.0]
    assert joined.select(torch.tensor([3, 0])).weights_L.tolist() == [1.0, 1.0, 2.0, 0.5]
    assert made.copy().weights_L.data_ptr() != made.weights_L.data_ptr()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lookups.of(torch.tensor([[1]])), "a KeyedJaggedTensor, got Tensor; write Lookups.single(ids)"),
        (lambda: Lookups.single({}), "lookups: expected names of tables with their ids, got {}"),
        (
            lambda: Lookups.single({"a": torch.tensor([1]), "b": torch.tensor([1, 2])}),
            "lookups: expected as many ids of 'b' as of 'a', one for each sample, got 2 and 1; Lookups.bags takes",
        ),
        (
            lambda: Lookups.bags({"a": (torch.tensor([1, 2]), torch.tensor([0, 1]))}),
            "lookups: expected ids of 'a' and offsets of all bags, from 0 to the number of ids, 2, got offsets [0] to [1]",
        ),
        (
            lambda: Lookups.bags(
                {"a": (torch.tensor([1]), torch.tensor([0, 1])), "b": (torch.tensor([1]), torch.tensor([0, 0, 1]))}
            ),
            "lookups: expected as many bags of 'b' as of 'a', got 2 and 1",
        ),
        (
            lambda: Lookups.bags({"a": (torch.tensor([1]), torch.tensor([0, 1]))}, {"a": torch.ones(2)}),
            "lookups: expected 1 weights of 'a', one for each id, got (2,)",
        ),
        (
            lambda: Lookups.bags({"a": (torch.tensor([1]), torch.tensor([0, 1]))}, {"b": torch.ones(1)}),
            "lookups: weights of 'b', of which there are no bags",
        ),
        (
            lambda: Lookups(torch.tensor([1]), torch.tensor([0, 1]), 1, torch.tensor([1])),
            "lookups.weights_L: expected a 1-D tensor of float32 on the CPU",
        ),
        (
            lambda: Lookups(torch.tensor([1]), torch.tensor([0, 1]), 1, names=("a", "b")),
            "lookups.names: expected 1 names, one for each table, got ('a', 'b')",
        ),
        (
            lambda: Lookups(torch.tensor([1, 2]), torch.tensor([0, 1, 2]), 2, names=("a", "a")),
            "lookups.names: expected every name once, got 'a' more than once in ('a', 'a'); join the bags",
        ),
        (
            lambda: Lookups.bags({"a": (torch.tensor([1, 2]), torch.tensor([1, 2]))}),
            "from 0 to the number of ids, 2, got offsets [1] to [2]; begin with 0",
        ),
        (
            lambda: Lookups.of({"a": torch.tensor([1]), "b": (torch.tensor([1]), torch.tensor([0, 1]))}),
            "lookups: expected ids of 'a' and offsets of all bags, got torch.int64 of shape (1,); write a pair (ids, offsets)",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_looked_up_is_refused(make, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("ids", [[7, 2], np.array([7, 2]), np.array([7, 2], np.uint32)])
def test_lists_and_arrays_of_integers_are_ids(ids):
    assert Lookups.of({"a": ids}).ids_L.tolist() == [7, 2]
    assert bags_of(Lookups.of({"a": (ids, [0, 0, 2])})) == [[[], [7, 2]]]


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (torch.tensor([1.9, 2.0]), "torch.float32 of shape (2,)"),
        (torch.tensor([True, False]), "torch.bool of shape (2,)"),
        (torch.tensor([[1, 2], [3, 4]]), "torch.int64 of shape (2, 2)"),
        (np.array([1.9, 2.0]), "a numpy array of float64 of shape (2,)"),
        (np.array([True, False]), "a numpy array of bool of shape (2,)"),
        (np.array([1, 2], np.uint64), "a numpy array of uint64 of shape (2,)"),
        ([1.9, 2], "[1.9, 2]"),
        ([True, False], "[True, False]"),
    ],
)
def test_what_is_no_integer_does_not_become_an_id_or_an_offset(ids, kind):
    told = f"as a 1-D tensor of integers, got {kind}; write torch.tensor([...], dtype=torch.int64)"
    with pytest.raises(ConfigError, match=re.escape(f"lookups: expected ids of 'a' {told}")):
        Lookups.of({"a": ids})
    with pytest.raises(ConfigError, match=re.escape(f"lookups: expected ids of 'a' {told}")):
        Lookups.bags({"a": (ids, torch.tensor([0, 2]))})
    with pytest.raises(ConfigError, match=re.escape(f"lookups: expected offsets of 'a' {told}")):
        Lookups.bags({"a": (torch.tensor([1]), ids)})


class Strided(Jagged):
    """With a batch size for each key."""

    def stride_per_key(self) -> list[int]:
        return [len(bags) for bags in self.by_key.values()]


class FloatLengths(Jagged):
    def lengths(self) -> Tensor:
        return super().lengths().float()


def test_a_keyed_tensor_has_as_many_bags_of_every_key():
    bags = {"a": [[1], [2]], "b": [[3], [4]]}
    assert bags_of(Lookups.of(Strided(bags))) == [*bags.values()]
    uneven = {"a": [[1], [2], [3]], "b": [[4]]}
    told = (
        "lookups: expected as many samples of every key, got [3, 1] of ['a', 'b']; make a KeyedJaggedTensor"
    )
    with pytest.raises(ConfigError, match=re.escape(told)):
        Lookups.of(Strided(uneven))
    told = "lookups: expected as many lengths of every key, got 3 for 2 keys; give the length of every bag"
    with pytest.raises(ConfigError, match=told):
        Lookups.of(Jagged({"a": [[1], [2]], "b": [[4]]}))
    told = "expected lengths of a KeyedJaggedTensor as a 1-D tensor of integers, got torch.float32"
    with pytest.raises(ConfigError, match=told):
        Lookups.of(FloatLengths(bags))


def test_a_nested_tensor_with_holes_is_refused_until_it_is_contiguous():
    starts, lengths = torch.tensor([0, 1, 2]), torch.tensor([2, 1, 2])
    nested = torch.nested.narrow(torch.arange(12).view(3, 4), 1, starts, lengths, layout=torch.jagged)
    told = "lookups: expected bags of 'a' back to back, got a nested tensor with holes between them; make it"
    with pytest.raises(ConfigError, match=told):
        Lookups.of({"a": nested})
    assert bags_of(Lookups.of({"a": nested.contiguous()})) == [[[0, 1], [5], [10, 11]]]


def test_bags_that_have_weights_keep_them_unless_others_are_given():
    class Weighted:
        def values(self) -> Tensor:
            return torch.tensor([1, 2])

        def offsets(self) -> Tensor:
            return torch.tensor([0, 1, 2])

        def weights_or_none(self) -> Tensor:
            return torch.tensor([0.5, 2.0])

    plain = (torch.tensor([3, 4]), torch.tensor([0, 1, 2]))
    bags = {"a": Weighted(), "b": plain}
    assert Lookups.bags(bags).weights_L.tolist() == [0.5, 2.0, 1.0, 1.0]
    assert Lookups.bags(bags, {"a": torch.tensor([3.0, 4.0])}).weights_L.tolist() == [3.0, 4.0, 1.0, 1.0]
