"""What a batch looks up: bags of ids, table by table.

Ids are stored table after table, within a table sample after sample, as in a ``KeyedJaggedTensor``
of TorchRec. Shape legend: ``T`` tables, ``B`` samples, ``L`` ids in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laconic.errors import ConfigError

__all__ = ["Lookups"]

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8)
_FLOATS = (torch.float32, torch.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Lookups:
    """A jagged matrix of tables x samples, each cell a bag of row numbers (possibly empty).

    >>> batch = laconic.Lookups.single({"user": torch.tensor([7, 2]), "item": torch.tensor([0, 5])})
    >>> batch.tables, batch.samples
    (2, 2)
    >>> clicks = (torch.tensor([3, 1, 4]), torch.tensor([0, 2, 2, 3]))  # the second sample has none
    >>> [bag.tolist() for bag in laconic.Lookups.bags({"clicks": clicks}).table(0)]
    [[3, 1, 4], [0, 2, 2, 3]]
    """

    ids_L: Tensor
    """Row numbers of their table, int64."""

    offsets: Tensor
    """int64 of size T * B + 1. The bag of table t and sample b is
    ``ids_L[offsets[t*B+b] : offsets[t*B+b+1]]``."""

    tables: int
    """T. A table may have empty bags only."""

    weights_L: Tensor | None = None
    """What each row is multiplied with before its bag is summed; None: 1."""

    names: tuple[str, ...] | None = None
    """Names of the tables. Without names they are in the order of whoever is asked."""

    def __post_init__(self) -> None:
        if self.tables < 1:
            raise ConfigError(f"lookups: expected at least one table, got {self.tables!r}")
        for name, least in (("ids_L", 0), ("offsets", 1)):
            _check_vector(name, getattr(self, name), _INTEGERS, least)
            object.__setattr__(self, name, getattr(self, name).to(torch.int64).contiguous())
        if self.weights_L is not None:
            _check_vector("weights_L", self.weights_L, _FLOATS, 0)
            if len(self.weights_L) != len(self.ids_L):
                raise ConfigError(
                    f"lookups.weights_L: expected {len(self.ids_L)} weights, one for each id, "
                    f"got {len(self.weights_L)}"
                )
        if self.names is not None and len(self.names) != self.tables:
            raise ConfigError(
                f"lookups.names: expected {self.tables} names, one for each table, got {self.names!r}"
            )
        twice = sorted(name for name, times in Counter(self.names or ()).items() if times > 1)
        if twice:
            raise ConfigError(
                f"lookups.names: expected every name once, got {twice[0]!r} more than once in {self.names!r}; "
                "join the bags of a table, or give each table a name of its own"
            )

    @classmethod
    def single(cls, ids: Tensor | Mapping[str, Any]) -> Lookups:
        """Look up one id per table and sample: B ids by name of the table, or a T x B tensor.

        Ids of a name are integers in a tensor, a numpy array or a list.
        """
        if isinstance(ids, Tensor):
            if ids.dim() != 2:
                raise ConfigError(f"lookups: expected ids of shape (tables, samples), got {tuple(ids.shape)}")
            return cls(ids.reshape(-1), torch.arange(ids.numel() + 1), ids.shape[0])
        names, given = _columns(ids)
        columns = [_vector(f"ids of {name!r}", ids_B) for name, ids_B in zip(names, given, strict=True)]
        for name, ids_B in zip(names, columns, strict=True):
            if len(ids_B) != len(columns[0]):
                raise ConfigError(
                    f"lookups: expected as many ids of {name!r} as of {names[0]!r}, one for each sample, "
                    f"got {len(ids_B)} and {len(columns[0])}; Lookups.bags takes bags of any length"
                )
        ids_L = torch.cat(columns)
        return cls(ids_L, torch.arange(len(ids_L) + 1), len(names), names=names)

    @classmethod
    def bags(cls, bags: Mapping[str, Any], weights: Mapping[str, Tensor] | None = None) -> Lookups:
        """Look up bags of ids by name of their table.

        Each is a pair of ids and B + 1 offsets, or has ``values()`` and ``offsets()``, as
        TorchRec's ``JaggedTensor`` and torch's jagged nested tensors have. ``weights``: of the ids,
        by name of the table; without an entry they are those of the ``JaggedTensor``, or 1.
        """
        names, columns = _columns(bags)
        pairs = [_pair(name, bag) for name, bag in zip(names, columns, strict=True)]
        for name, (_, offsets) in zip(names, pairs, strict=True):
            if len(offsets) != len(pairs[0][1]):
                raise ConfigError(
                    f"lookups: expected as many bags of {name!r} as of {names[0]!r}, "
                    f"got {len(offsets) - 1} and {len(pairs[0][1]) - 1}"
                )
        lengths = torch.cat([offsets.diff() for _, offsets in pairs])
        ids_L = torch.cat([values for values, _ in pairs])
        weights = {**_own_weights(bags), **(weights or {})}
        if not weights:
            return cls(ids_L, _begins(lengths), len(names), names=names)
        unknown = sorted(weights.keys() - set(names))
        if unknown:
            raise ConfigError(f"lookups: weights of {unknown[0]!r}, of which there are no bags")
        dtype = next(iter(weights.values())).dtype
        ones = {
            name: torch.ones(len(values), dtype=dtype) for name, (values, _) in zip(names, pairs, strict=True)
        }
        for name in weights:
            if weights[name].shape != ones[name].shape:
                raise ConfigError(
                    f"lookups: expected {len(ones[name])} weights of {name!r}, one for each id, "
                    f"got {tuple(weights[name].shape)}"
                )
        weights_L = torch.cat([weights.get(name, ones[name]) for name in names])
        return cls(ids_L, _begins(lengths), len(names), weights_L, names)

    @classmethod
    def of(cls, batch: Any) -> Lookups:
        """Return a batch of any known shape as lookups.

        That is one of these; a mapping of names to ids, as for ``single``, or to bags, as for
        ``bags``; or anything that has ``keys()``, ``values()``, ``lengths()`` and
        ``weights_or_none()``, as TorchRec's ``KeyedJaggedTensor`` has.
        """
        if isinstance(batch, Lookups):
            return batch
        if isinstance(batch, Mapping):
            return cls.single(batch) if all(map(_is_column, batch.values())) else cls.bags(batch)
        if all(callable(getattr(batch, name, None)) for name in ("keys", "values", "lengths")):
            names = tuple(batch.keys())
            weights_L = batch.weights_or_none() if hasattr(batch, "weights_or_none") else None
            return cls(batch.values(), _begins(_keyed_lengths(batch, names)), len(names), weights_L, names)
        raise ConfigError(
            f"lookups: expected Lookups, a mapping of names to ids, or a KeyedJaggedTensor, got "
            f"{type(batch).__name__}; write Lookups.single(ids) for one id of every table and sample"
        )

    @classmethod
    def joined(cls, parts: Sequence[Lookups]) -> Lookups:
        """Bags of all samples of several batches, at least one, in their order."""
        tables, weights = parts[0].tables, [part.weights_L for part in parts]
        pieces = [part._slice(t) for t in range(tables) for part in parts]
        owners = [part for _ in range(tables) for part in parts]
        sizes = torch.cat([part.table(t)[1].diff() for t in range(tables) for part in parts])
        ids_L = torch.cat([part.ids_L[piece] for part, piece in zip(owners, pieces, strict=True)])
        weights_L = None
        if any(weight is not None for weight in weights):
            weights_L = torch.cat(
                [part._weights()[piece] for part, piece in zip(owners, pieces, strict=True)]
            )
        return cls(ids_L, _begins(sizes), tables, weights_L, parts[0].names)

    @property
    def samples(self) -> int:
        """B, which may be zero."""
        return (self.offsets.numel() - 1) // self.tables

    def copy(self) -> Lookups:
        """Return the same in memory of its own."""
        weights_L = None if self.weights_L is None else self.weights_L.clone()
        return Lookups(self.ids_L.clone(), self.offsets.clone(), self.tables, weights_L, self.names)

    def table(self, t: int) -> tuple[Tensor, Tensor]:
        """Return ids of one table, and B + 1 offsets: begins of samples' bags, and the end."""
        offsets = self.offsets[t * self.samples : (t + 1) * self.samples + 1]
        return self.ids_L[self._slice(t)], offsets - offsets[0]

    def select(self, chosen: Tensor) -> Lookups:
        """Bags of some samples, by their numbers, in any order."""
        bags = (torch.arange(self.tables).unsqueeze(1) * self.samples + chosen).flatten()
        begins, ends = self.offsets[bags], self.offsets[bags + 1]
        offsets = _begins(ends - begins)
        place_L = torch.arange(int(offsets[-1]))
        place_L += torch.repeat_interleave(begins - offsets[:-1], ends - begins)
        return self._at(place_L, offsets, self.tables, self.names)

    def for_tables(self, names: Sequence[str]) -> Lookups:
        """Bags of the tables of these names, in this order; ``ConfigError`` if one is missing.

        Lookups without names are taken as they are.
        """
        if self.names is None or self.names == tuple(names):
            return self
        missing = [name for name in names if name not in self.names]
        if missing:
            raise ConfigError(f"lookups: no ids of table {missing[0]!r} (got: {', '.join(self.names)})")
        wanted = [self.names.index(name) for name in names]
        pieces = [self._slice(t) for t in wanted]
        offsets = _begins(torch.cat([self.table(t)[1].diff() for t in wanted]))
        place_L = torch.cat([torch.arange(piece.start, piece.stop) for piece in pieces])
        return self._at(place_L, offsets, len(wanted), tuple(names))

    def _slice(self, t: int) -> slice:
        """Where the ids of one table are."""
        return slice(int(self.offsets[t * self.samples]), int(self.offsets[(t + 1) * self.samples]))

    def _weights(self) -> Tensor:
        return torch.ones(len(self.ids_L)) if self.weights_L is None else self.weights_L

    def _at(self, place_L: Tensor, offsets: Tensor, tables: int, names: tuple[str, ...] | None) -> Lookups:
        """Ids and weights of these places."""
        weights_L = None if self.weights_L is None else self.weights_L[place_L]
        return Lookups(self.ids_L[place_L], offsets, tables, weights_L, names)


def _check_vector(name: str, tensor: Tensor, types: Sequence[torch.dtype], least: int) -> None:
    if tensor.dim() != 1 or tensor.dtype not in types or tensor.numel() < least or not tensor.is_cpu:
        kind = str(types[0]).removeprefix("torch.")
        raise ConfigError(
            f"lookups.{name}: expected a 1-D tensor of {kind} on the CPU with at least {least} entries, got "
            f"{tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}"
        )


def _columns(columns: Mapping[str, Any]) -> tuple[tuple[str, ...], list[Any]]:
    if not isinstance(columns, Mapping) or not columns:
        raise ConfigError(f"lookups: expected names of tables with their ids, got {columns!r}")
    return tuple(columns), list(columns.values())


def _is_column(ids: object) -> bool:
    """Whether these are ids without offsets: one for each sample."""
    return isinstance(ids, (list, np.ndarray)) or (isinstance(ids, Tensor) and not ids.is_nested)


def _vector(what: str, given: object) -> Tensor:
    """Return integers as a tensor of int64; nothing that is not one becomes one."""
    found = given
    if isinstance(given, list) and all(type(entry) is int for entry in given):
        found = torch.tensor(given, dtype=torch.int64)
    elif isinstance(given, np.ndarray) and given.dtype.kind in "iu" and np.can_cast(given.dtype, np.int64):
        found = torch.from_numpy(given.astype(np.int64))
    if isinstance(found, Tensor) and not found.is_nested and found.dim() == 1 and found.dtype in _INTEGERS:
        return found.to(torch.int64)
    raise ConfigError(
        f"lookups: expected {what} as a 1-D tensor of integers, got {_kind_of(given)}; "
        "write torch.tensor([...], dtype=torch.int64)"
    )


def _pair(name: str, bags: Any) -> tuple[Tensor, Tensor]:
    """Return ids and offsets of one table."""
    if getattr(bags, "layout", None) is torch.jagged and bags.lengths() is not None:
        raise ConfigError(
            f"lookups: expected bags of {name!r} back to back, got a nested tensor with holes between them; "
            "make it contiguous() first"
        )
    if callable(getattr(bags, "values", None)) and callable(getattr(bags, "offsets", None)):
        bags = (bags.values(), bags.offsets())
    if not isinstance(bags, tuple) or len(bags) != 2:
        raise ConfigError(
            f"lookups: expected ids of {name!r} and offsets of all bags, got {_kind_of(bags)}; write a pair "
            "(ids, offsets), or Lookups.single for one id of every table and sample"
        )
    values, offsets = _vector(f"ids of {name!r}", bags[0]), _vector(f"offsets of {name!r}", bags[1])
    if not len(offsets) or int(offsets[0]) != 0 or int(offsets[-1]) != len(values):
        raise ConfigError(
            f"lookups: expected ids of {name!r} and offsets of all bags, from 0 to the number of ids, "
            f"{len(values)}, got offsets {offsets.tolist()[:1]} to {offsets.tolist()[-1:]}; begin with 0, and "
            "end with the number of ids"
        )
    return values, offsets


def _own_weights(bags: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return weights that bags have themselves, as a ``JaggedTensor`` may."""
    asked = {name: getattr(bag, "weights_or_none", None) for name, bag in bags.items()}
    found = {name: weights() for name, weights in asked.items() if callable(weights)}
    return {name: weights for name, weights in found.items() if weights is not None}


def _keyed_lengths(batch: Any, names: Sequence[str]) -> Tensor:
    """Return the lengths of all bags of a KeyedJaggedTensor, as many of each key."""
    strides = list(batch.stride_per_key()) if callable(getattr(batch, "stride_per_key", None)) else []
    if len(set(strides)) > 1:
        raise ConfigError(
            f"lookups: expected as many samples of every key, got {strides} of {list(names)}; "
            "make a KeyedJaggedTensor of one batch size for all keys"
        )
    lengths = _vector("lengths of a KeyedJaggedTensor", batch.lengths())
    if names and len(lengths) % len(names):
        raise ConfigError(
            f"lookups: expected as many lengths of every key, got {len(lengths)} for {len(names)} keys; "
            "give the length of every bag, also of empty ones"
        )
    return lengths


def _kind_of(given: object) -> str:
    """Say of what type and shape something is."""
    if isinstance(given, Tensor):
        return f"{given.dtype} of shape {tuple(given.shape)}"
    if isinstance(given, np.ndarray):
        return f"a numpy array of {given.dtype} of shape {given.shape}"
    return repr(given)


def _begins(sizes: Tensor) -> Tensor:
    """Where bags of these sizes begin, one after the other, and the end of the last."""
    return torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
