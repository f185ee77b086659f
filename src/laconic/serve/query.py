"""Queries: samples of one request, checked against the signature; many requests as one batch.

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
from laconic.errors import ConfigError
from laconic.lookups import Lookups
from laconic.serve.refusal import Refusal, bad_request
from laconic.serve.settings import RequestLimits
from laconic.serve.signature import DENSE, LENGTHS, RAW, RAW_VALUES, Signature

__all__ = ["Noted", "Query", "merged", "read_query"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Noted:
    """Raw dense values of a feature that were taken for 0, as in training."""

    feature: str
    what: str
    """``missing``: NaN became 0 after the transformation; ``negative``: 0 before the logarithm."""
    count: int
    """Number of these values."""


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """Checked samples, which a model can score without checking them again."""

    dense_BF: NDArray[np.float32]
    ids_L: NDArray[np.int64]
    lengths_TB: NDArray[np.int64]
    unknown_T: NDArray[np.int64]
    """Number of ids that were mapped to the row for unknown ones, by table."""
    noted: tuple[Noted, ...] = ()
    """Raw dense values that were taken for 0."""

    @property
    def samples(self) -> int:
        """B, which may be zero."""
        return int(self.lengths_TB.shape[1])

    @property
    def one_hot(self) -> bool:
        """Whether every bag has one id."""
        return self.ids_L.size == self.lengths_TB.size and bool((self.lengths_TB == 1).all())

    def features(self) -> tuple[NDArray[np.float32], Lookups]:
        """Return dense features and lookups as a model takes them; the memory is shared."""
        offsets = np.zeros(self.lengths_TB.size + 1, dtype=np.int64)
        np.cumsum(self.lengths_TB.reshape(-1), out=offsets[1:])
        lookups = Lookups(torch.from_numpy(self.ids_L), torch.from_numpy(offsets), self.lengths_TB.shape[0])
        return self.dense_BF, lookups

    def only(self, keep_B: NDArray[np.bool_]) -> Query:
        """Leave the other samples out; counts of unknown ids and odd values are not kept."""
        keep_L = np.repeat(np.tile(keep_B, len(self.lengths_TB)), self.lengths_TB.reshape(-1))
        none = np.zeros_like(self.unknown_T)
        return Query(self.dense_BF[keep_B], self.ids_L[keep_L], self.lengths_TB[:, keep_B], none)

    def ids_of(self, table: int) -> NDArray[np.int64]:
        """Ids of one table, bag after bag."""
        begin = int(self.lengths_TB[:table].sum())
        return self.ids_L[begin : begin + int(self.lengths_TB[table].sum())]


def read_query(tensors: Mapping[str, Array], signature: Signature, limits: RequestLimits) -> Query:
    """Check every size and every value.

    A refusal names the first that is wrong, with its table and sample.
    """
    schema = signature.schema
    _check_names(tensors, signature)
    table = schema.categorical[0].name
    counted = next(name for name in (table + LENGTHS, table, table + RAW_VALUES) if name in tensors)
    samples = tensors[counted].shape[0]
    if samples > limits.samples:
        raise Refusal(413, f"request: expected at most {limits.samples} samples, got {samples}; send several")
    dense_BF, noted = _dense(tensors, signature, samples)
    ids, lengths, unknown = [], [], []
    for feature, row in zip(schema.categorical, signature.unknown, strict=True):
        lengths_B = _lengths(feature, tensors, signature, samples)
        if feature.name in tensors:
            given_L = tensors[feature.name].reshape(-1).astype(np.int64)
            ids_L, strange = _known(feature, given_L, lengths_B, row)
        else:
            ids_L, strange = _looked_up(feature, tensors, signature)
        ids.append(ids_L)
        lengths.append(lengths_B)
        unknown.append(strange)
    total = sum(ids_L.size for ids_L in ids)
    if total > limits.ids:
        raise Refusal(413, f"request: expected at most {limits.ids} ids, got {total}; send several")
    return Query(dense_BF, np.concatenate(ids), np.stack(lengths), np.array(unknown), noted)


def merged(queries: Sequence[Query]) -> Query:
    """Put all samples of all queries into one query, in their order."""
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
    raw = {
        feature.name + RAW_VALUES: feature.name for feature in features if feature.name in signature.raw_ids
    }
    raw |= {RAW: DENSE} if signature.schema.dense and signature.raw is not None else {}
    for instead, name in raw.items():
        if instead in tensors and name in tensors:
            raise bad_request(f"request: has both {name!r} and {instead!r}; leave one out")
    needed = [DENSE] if signature.schema.dense else []
    needed += [feature.name for feature in features]
    given = {raw.get(name, name) for name in tensors}
    known = {*needed, *raw, *(feature.name + LENGTHS for feature in features)}
    for name in [name for name in tensors if name not in known]:
        table = name.removesuffix(RAW_VALUES)
        if name == RAW and DENSE in needed:
            raise bad_request(
                f"input {RAW!r}: the artifact does not say how raw values become {DENSE!r}; send {DENSE!r}, or prepare, "
                "train and quantize again"
            )
        if name != table and table in needed:
            raise bad_request(
                f"input {name!r}: the artifact has neither hash nor vocabulary for {table!r}; send ids as {table!r}"
            )
    if missing := [name for name in needed if name not in given]:
        raise bad_request(f"request: lacks {len(missing)} inputs, the first is {missing[0]!r}")
    if strange := [name for name in tensors if name not in known]:
        raise bad_request(f"request: no input {strange[0][:80]!r} (known: {', '.join(needed)})")


def _dense(
    tensors: Mapping[str, Array], signature: Signature, samples: int
) -> tuple[NDArray[np.float32], tuple[Noted, ...]]:
    features = signature.schema.dense
    if not features:
        return np.empty((samples, 0), dtype=np.float32), ()
    raw = signature.raw if RAW in tensors else None
    name, kind = (DENSE, "FP32") if raw is None else (RAW, "FP64")
    given_BF = tensors[name]
    allowed = ("float32",) if raw is None else ("float32", "float64")
    if given_BF.dtype.name not in allowed or given_BF.shape != (samples, len(features)):
        raise bad_request(
            f"input {name!r}: expected {kind} of shape [{samples}, {len(features)}], got {given_BF.dtype.name} of shape "
            f"{list(given_BF.shape)}"
        )
    missing_BF = np.isnan(given_BF) if raw is not None else np.zeros(given_BF.shape, bool)
    _refuse(~np.isfinite(given_BF) & ~missing_BF, given_BF, signature, name, "a finite number")
    if raw is None:
        return np.array(given_BF), ()  # a copy: the body need not stay, and torch must be able to write
    dense_BF = raw.transform(given_BF.astype(np.float64))
    _refuse(
        ~np.isfinite(dense_BF), given_BF, signature, name, "a number that float32 can hold once transformed"
    )
    negative_F = np.count_nonzero(given_BF < 0, axis=0) * np.array([feature.log1p for feature in raw.dense])
    counts = (("missing", np.count_nonzero(missing_BF, axis=0)), ("negative", negative_F))
    noted = [Noted(features[f], what, int(n_F[f])) for what, n_F in counts for f in np.flatnonzero(n_F)]
    return dense_BF, tuple(noted)


def _refuse(
    wrong_BF: NDArray[np.bool_], given_BF: Array, signature: Signature, name: str, expected: str
) -> None:
    if wrong_BF.any():
        sample, feature = np.argwhere(wrong_BF)[0]
        raise bad_request(
            f"input {name!r}: sample {sample}, feature {signature.schema.dense[feature]!r}: expected {expected}, got "
            f"{given_BF[sample, feature]}"
        )


def _looked_up(
    feature: Categorical, tensors: Mapping[str, Array], signature: Signature
) -> tuple[NDArray[np.int64], int]:
    """Return the ids of raw values, and the number of values that the model does not know."""
    name = feature.name + RAW_VALUES
    try:
        ids_L = signature.raw_ids[feature.name](tensors[name].reshape(-1))
    except ConfigError as error:
        raise bad_request(f"input {name!r}: {error}") from None
    return ids_L, int(np.count_nonzero(ids_L == feature.rows - 1))


def _lengths(
    feature: Categorical, tensors: Mapping[str, Array], signature: Signature, samples: int
) -> NDArray[np.int64]:
    """Return the length of every bag; ids and raw values can be sent in three shapes."""
    table = feature.name
    raw = None if table in tensors else signature.raw_ids[table]
    name = table if raw is None else table + RAW_VALUES
    ids, kind = tensors[name], "BYTES" if raw is not None and raw.text else "INT64"
    if ids.dtype.kind != ("O" if kind == "BYTES" else "i"):
        got = "BYTES" if ids.dtype.kind == "O" else ids.dtype.name
        raise bad_request(f"input {name!r}: expected {kind}, got {got}")
    if raw is None and np.ma.is_masked(ids):
        raise bad_request(f"input {name!r}: expected integers, got null among them")
    given = tensors.get(table + LENGTHS)
    if given is None:
        if ids.shape[0] != samples or (ids.ndim == 2 and ids.shape[1] != 1 and not feature.bag):
            hint = " or [B, k]" if feature.bag else ""
            raise bad_request(
                f"input {name!r}: expected shape [{samples}]{hint}, B being {samples}, got {list(ids.shape)}"
            )
        return np.full(samples, ids.shape[1] if ids.ndim == 2 else 1, dtype=np.int64)
    if not feature.bag:
        raise bad_request(
            f"input {table + LENGTHS!r}: table {table!r} takes one id a sample; leave the lengths out"
        )
    if given.dtype.kind != "i" or given.shape != (samples,) or ids.ndim != 1:
        raise bad_request(
            f"input {table + LENGTHS!r}: expected INT32 of shape [{samples}] beside ids of shape [L], got "
            f"{given.dtype.name} of shape {list(given.shape)} beside {list(ids.shape)}"
        )
    lengths_B = given.astype(np.int64)
    if samples and lengths_B.min() < 0:
        sample = int(np.argmin(lengths_B))
        raise bad_request(
            f"input {table + LENGTHS!r}: sample {sample}: expected a length >= 0, got {lengths_B[sample]}"
        )
    if (total := sum(lengths_B.tolist())) != ids.size:
        raise bad_request(
            f"input {table + LENGTHS!r}: lengths add up to {total}, but there are {ids.size} ids"
        )
    return lengths_B


def _known(
    feature: Categorical, ids_L: NDArray[np.int64], lengths_B: NDArray[np.int64], row: int | None
) -> tuple[NDArray[np.int64], int]:
    """Return ids that are within the table, and the number of those that were not."""
    strange_L = (ids_L < 0) | (ids_L >= feature.rows)
    count = int(np.count_nonzero(strange_L))
    if not count:
        return ids_L, 0
    if row is None:
        place = int(np.argmax(strange_L))
        sample = int(np.searchsorted(np.cumsum(lengths_B), place, side="right"))
        raise bad_request(
            f"input {feature.name!r}: sample {sample}: expected an id in [0, {feature.rows}), got {ids_L[place]}"
        )
    return np.where(strange_L, row, ids_L), count
