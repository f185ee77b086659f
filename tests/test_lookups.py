"""Lookups in the shapes of batches: one id each, bags, weights, names, jagged tensors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

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
            "lookups: expected as many ids of 'b' as of 'a', each a 1-D tensor, got (2,) and (1,)",
        ),
        (
            lambda: Lookups.bags({"a": (torch.tensor([1, 2]), torch.tensor([0, 1]))}),
            "lookups: expected ids of 'a' and offsets of all bags",
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
    ],
)  # fmt: skip
def test_what_cannot_be_looked_up_is_refused(make, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make()
