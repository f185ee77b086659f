"""Samples of one request, checked against the model's signature; and many requests as one batch.

Shape legend: ``B`` samples, ``F`` dense features, ``T`` tables, ``L`` ids, table after table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.data import Categorical
from laconic.lookups import Lookups
from laconic.serve.refusal import Refusal
from laconic.serve.settings import Limits
from laconic.serve.signature import DENSE, LENGTHS, RAW, Signature

__all__ = ["Query", "merged", "read_query"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """What a model can score without looking twice."""

    dense_BF: NDArray[np.float32]
    ids_L: NDArray[np.int64]
    lengths_TB: NDArray[np.int64]
    unknown_T: NDArray[np.int64]
    """Ids that were mapped to the row for unknown ones, by table."""

    @property
    def samples(self) -> int:
        """B, which may be zero."""
        return int(self.lengths_TB.shape[1])

    @property
    def one_hot(self) -> bool:
        """Whether every bag has one id."""
        return self.ids_L.size == self.lengths_TB.size and bool((self.lengths_TB == 1).all())

    def features(self) -> tuple[NDArray[np.float32], Lookups]:
        """As a model takes it; the memory is shared."""
        offsets = np.zeros(self.lengths_TB.size + 1, dtype=np.int64)
        np.cumsum(self.lengths_TB.reshape(-1), out=offsets[1:])
        lookups = Lookups(torch.from_numpy(self.ids_L), torch.from_numpy(offsets), self.lengths_TB.shape[0])
        return self.dense_BF, lookups

    def ids_of(self, table: int) -> NDArray[np.int64]:
        """Ids of one table, bag after bag."""
        begin = int(self.lengths_TB[:table].sum())
        return self.ids_L[begin : begin + int(self.lengths_TB[table].sum())]


def read_query(tensors: Mapping[str, Array], signature: Signature, limits: Limits) -> Query:
    """Check every size and every value; the first that is wrong is named, with its table and sample."""
    schema = signature.schema
    _check_names(tensors, signature)
    table = schema.categorical[0].name
    samples = tensors.get(table + LENGTHS, tensors[table]).shape[0]
    if samples > limits.samples:
        raise Refusal(413, f"request: expected at most {limits.samples} samples, got {samples}; send several")
    dense_BF = _dense(tensors, signature, samples)
    ids, lengths, unknown = [], [], []
    for feature, row in zip(schema.categorical, signature.unknown, strict=True):
        lengths_B = _lengths(feature, tensors, samples)
        ids_L, strange = _known(feature, tensors[feature.name].reshape(-1).astype(np.int64), lengths_B, row)
        ids.append(ids_L)
        lengths.append(lengths_B)
        unknown.append(strange)
    total = sum(ids_L.size for ids_L in ids)
    if total > limits.ids:
        raise Refusal(413, f"request: expected at most {limits.ids} ids, got {total}; send several")
    return Query(dense_BF, np.concatenate(ids), np.stack(lengths), np.array(unknown))


def merged(queries: Sequence[Query]) -> Query:
    """All samples of all queries, in their order."""
    if len(queries) == 1:
        return queries[0]
    lengths_TB = np.concatenate([query.lengths_TB for query in queries], axis=1)
    tables = lengths_TB.shape[0]
    if all(query.one_hot for query in queries):
        ids_L = np.concatenate([query.ids_L.reshape(tables, -1) for query in queries], axis=1).reshape(-1)
    else:
        ids_L = np.concatenate([query.ids_of(table) for table in range(tables) for query in queries])
    return Query(
        np.concatenate([query.dense_BF for query in queries]),
        ids_L,
        lengths_TB,
        np.sum([query.unknown_T for query in queries], axis=0),
    )


def _check_names(tensors: Mapping[str, Array], signature: Signature) -> None:
    features = signature.schema.categorical
    raw = RAW in tensors and signature.transform is not None
    needed = [RAW if raw else DENSE] if signature.schema.dense else []
    needed += [feature.name for feature in features]
    known = {*needed, *(feature.name + LENGTHS for feature in features)}
    if missing := [name for name in needed if name not in tensors]:
        raise Refusal(400, f"request: lacks {len(missing)} inputs, the first is {missing[0]!r}")
    if strange := [name for name in tensors if name not in known]:
        raise Refusal(400, f"request: no input {strange[0][:80]!r} (known: {', '.join(needed)})")


def _dense(tensors: Mapping[str, Array], signature: Signature, samples: int) -> NDArray[np.float32]:
    features = signature.schema.dense
    if not features:
        return np.empty((samples, 0), dtype=np.float32)
    name = RAW if RAW in tensors else DENSE
    given_BF = tensors[name]
    if given_BF.dtype != np.float32 or given_BF.shape != (samples, len(features)):
        raise Refusal(
            400,
            f"input {name!r}: expected FP32 of shape [{samples}, {len(features)}], got {given_BF.dtype.name} of shape "
            f"{list(given_BF.shape)}",
        )
    if name == RAW and signature.transform is not None:
        return signature.transform(given_BF.astype(np.float64))
    wrong_BF = ~np.isfinite(given_BF)
    if wrong_BF.any():
        sample, feature = np.argwhere(wrong_BF)[0]
        raise Refusal(
            400,
            f"input {name!r}: sample {sample}, feature {features[feature]!r}: expected a finite number, got "
            f"{given_BF[sample, feature]}",
        )
    return np.array(given_BF)  # of its own: the body need not stay, and torch wants to be able to write


def _lengths(feature: Categorical, tensors: Mapping[str, Array], samples: int) -> NDArray[np.int64]:
    """Length of every bag, by whichever of the three ways the ids came."""
    name, ids = feature.name, tensors[feature.name]
    if ids.dtype.kind != "i":
        raise Refusal(400, f"input {name!r}: expected INT64, got {ids.dtype.name}")
    given = tensors.get(name + LENGTHS)
    if given is None:
        if ids.shape[0] != samples or (ids.ndim == 2 and ids.shape[1] != 1 and not feature.bag):
            hint = " or [B, k]" if feature.bag else ""
            raise Refusal(
                400,
                f"input {name!r}: expected shape [{samples}]{hint}, B being {samples}, got {list(ids.shape)}",
            )
        return np.full(samples, ids.shape[1] if ids.ndim == 2 else 1, dtype=np.int64)
    if not feature.bag:
        raise Refusal(
            400, f"input {name + LENGTHS!r}: table {name!r} takes one id a sample; leave the lengths out"
        )
    if given.dtype.kind != "i" or given.shape != (samples,) or ids.ndim != 1:
        raise Refusal(
            400,
            f"input {name + LENGTHS!r}: expected INT32 of shape [{samples}] beside ids of shape [L], got "
            f"{given.dtype.name} of shape {list(given.shape)} beside {list(ids.shape)}",
        )
    lengths_B = given.astype(np.int64)
    if samples and lengths_B.min() < 0:
        sample = int(np.argmin(lengths_B))
        raise Refusal(
            400, f"input {name + LENGTHS!r}: sample {sample}: expected a length >= 0, got {lengths_B[sample]}"
        )
    if (total := sum(lengths_B.tolist())) != ids.size:
        raise Refusal(
            400, f"input {name + LENGTHS!r}: lengths add up to {total}, but there are {ids.size} ids"
        )
    return lengths_B


def _known(
    feature: Categorical, ids_L: NDArray[np.int64], lengths_B: NDArray[np.int64], row: int | None
) -> tuple[NDArray[np.int64], int]:
    """Ids within the table, and how many were not."""
    strange_L = (ids_L < 0) | (ids_L >= feature.rows)
    count = int(np.count_nonzero(strange_L))
    if not count:
        return ids_L, 0
    if row is None:
        place = int(np.argmax(strange_L))
        sample = int(np.searchsorted(np.cumsum(lengths_B), place, side="right"))
        raise Refusal(
            400,
            f"input {feature.name!r}: sample {sample}: expected an id in [0, {feature.rows}), got {ids_L[place]}",
        )
    return np.where(strange_L, row, ids_L), count
