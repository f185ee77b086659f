"""What a batch looks up: bags of ids, table by table.

Ids are stored table after table, within a table sample after sample, as in a ``KeyedJaggedTensor``
of TorchRec. Shape legend: ``T`` tables, ``B`` samples, ``L`` ids in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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

    @classmethod
    def single(cls, ids: Tensor | Mapping[str, Tensor]) -> Lookups:
        """Look up one id per table and sample: B ids by name of the table, or a T x B tensor."""
        if isinstance(ids, Tensor):
            if ids.dim() != 2:
                raise ConfigError(f"lookups: expected ids of shape (tables, samples), got {tuple(ids.shape)}")
            return cls(ids.reshape(-1), torch.arange(ids.numel() + 1), ids.shape[0])
        names, columns = _columns(ids)
        for name, ids_B in zip(names, columns, strict=True):
            if not isinstance(ids_B, Tensor) or ids_B.shape != columns[0].shape or ids_B.dim() != 1:
                raise ConfigError(
                    f"lookups: expected as many ids of {name!r} as of {names[0]!r}, each a 1-D tensor, "
                    f"got {_shape_of(ids_B)} and {_shape_of(columns[0])}; Lookups.bags takes bags of any length"
                )
        ids_L = torch.cat([ids_B.to(torch.int64) for ids_B in columns])
        return cls(ids_L, torch.arange(len(ids_L) + 1), len(names), names=names)

    @classmethod
    def bags(cls, bags: Mapping[str, Any], weights: Mapping[str, Tensor] | None = None) -> Lookups:
        """Look up bags of ids by name of their table.

        Each is a pair of ids and B + 1 offsets, or has ``values()`` and ``offsets()``, as
        TorchRec's ``JaggedTensor`` and torch's jagged nested tensors have. ``weights``: of the ids,
        by name of the table; ids of tables that it does not name weigh 1.
        """
        names, columns = _columns(bags)
        pairs = [_pair(name, bag) for name, bag in zip(names, columns, strict=True)]
        for name, (_, offsets) in zip(names, pairs, strict=True):
            if len(offsets) != len(pairs[0][1]):
                raise ConfigError(
                    f"lookups: expected as many bags of {name!r} as of {names[0]!r}, "
                    f"got {len(offsets) - 1} and {len(pairs[0][1]) - 1}"
                )
        lengths = torch.cat([offsets.to(torch.int64).diff() for _, offsets in pairs])
        ids_L = torch.cat([values.to(torch.int64) for values, _ in pairs])
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
            alike = all(isinstance(ids, Tensor) and not ids.is_nested for ids in batch.values())
            return cls.single(batch) if alike else cls.bags(batch)
        if all(callable(getattr(batch, name, None)) for name in ("keys", "values", "lengths")):
            names = tuple(batch.keys())
            weights_L = batch.weights_or_none() if hasattr(batch, "weights_or_none") else None
            return cls(batch.values(), _begins(batch.lengths().to(torch.int64)), len(names), weights_L, names)
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


def _pair(name: str, bags: Any) -> tuple[Tensor, Tensor]:
    """Return ids and offsets of one table."""
    if callable(getattr(bags, "values", None)) and callable(getattr(bags, "offsets", None)):
        bags = (bags.values(), bags.offsets())
    if isinstance(bags, tuple) and len(bags) == 2 and all(isinstance(part, Tensor) for part in bags):
        values, offsets = bags
        if values.dim() == offsets.dim() == 1 and len(offsets) and int(offsets[-1]) == len(values):
            return values, offsets
    raise ConfigError(
        f"lookups: expected ids of {name!r} and offsets of all bags, of which the last is their number, "
        f"got {bags!r}"
    )


def _shape_of(ids: object) -> str:
    return str(tuple(ids.shape)) if isinstance(ids, Tensor) else type(ids).__name__


def _begins(sizes: Tensor) -> Tensor:
    """Where bags of these sizes begin, one after the other, and the end of the last."""
    return torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
