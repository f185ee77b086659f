"""The engine, which scores samples with an artifact in the precision that it says; and what a server asks of a model.

Any number of threads may score at once: what they use is never changed, only replaced as a whole.
Shape legend: ``B`` samples, ``F`` dense features, ``T`` tables, ``D`` numbers of an embedding.
"""

from __future__ import annotations

import copy
import hashlib
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic import kernels
from laconic.errors import ConfigError
from laconic.lookups import Lookups
from laconic.quantize.formats import Artifact, RowFormat, read_artifact
from laconic.quantize.formats.features import Population, RawIds
from laconic.serve.dense_network import DenseNetwork
from laconic.serve.signature import Signature

__all__ = ["Engine", "EngineScorer", "Scorer"]


@dataclass(frozen=True, slots=True)
class _State:
    """What scores: replaced, never changed."""

    tables: Any
    network: DenseNetwork
    precisions: dict[str, str]


class Engine:
    """A model that is ready to score."""

    def __init__(self, artifact: Artifact, *, threads: int = 1, map_unknown: bool = False) -> None:
        """``threads``: of one call, at most.

        ``map_unknown``: ids that a table does not have are looked up in its row for unknown ones, where it has such a
        row, instead of being refused.
        """
        if threads < 1:
            raise ConfigError(f"engine: expected at least one thread, got {threads!r}")
        self.artifact, self.threads = artifact, threads
        self._kernels = kernels.active()
        self._shadow: Artifact | None = None
        self._switching = threading.Lock()
        self._unknown_T: NDArray[np.int64] | None = None
        if map_unknown:
            rows = [table.rows - 1 if table.unknown else -1 for table in artifact.features.tables]
            self._unknown_T = np.array(rows, np.int64)
        tables = self._kernels.row_tables(artifact.shape.dim)
        for name, choice in self._table_choices(artifact):
            tables.add(artifact.tables[name].contiguous().numpy(), choice.code)
        self._state = _State(tables, self._network(artifact.layers), self._own_precisions())

    @classmethod
    def load(cls, folder: str | Path, threads: int = 1, *, map_unknown: bool = False) -> Engine:
        """Read the artifact in a folder; ``FormatError`` where it is damaged."""
        return cls(read_artifact(folder), threads=threads, map_unknown=map_unknown)

    @property
    def precisions(self) -> dict[str, str]:
        """Precision of every table and layer, as they are computed now."""
        return dict(self._state.precisions)

    def score(self, dense_BF: NDArray[np.float32], lookups: Lookups) -> NDArray[np.float32]:
        """Probabilities, one for each sample; ``ConfigError`` for shapes and ids that the model does not have."""
        logits_B = self.logits(dense_BF, lookups)
        with np.errstate(over="ignore"):
            return np.float32(1.0) / (np.float32(1.0) + np.exp(-logits_B))

    def logits(self, dense_BF: NDArray[np.float32], lookups: Lookups) -> NDArray[np.float32]:
        """Logits, one for each sample."""
        state, shape = self._state, self.artifact.shape
        self._check(dense_BF, lookups)
        samples = len(dense_BF)
        first = state.network.own_vectors
        vectors_BVD = np.empty((samples, first + shape.tables, shape.dim), np.float32)
        ids_L, offsets = lookups.ids_L.numpy(), lookups.offsets.numpy()
        mean = shape.pooling == "mean"
        bad = self._kernels.embedding_bags(
            state.tables, ids_L, offsets, None, mean, self._unknown_T, vectors_BVD, first, self.threads
        )
        if bad >= 0:
            raise self._bad_id(bad, lookups)
        return state.network.logits(np.ascontiguousarray(dense_BF), vectors_BVD)

    def switch(self, name: str, precision: str) -> None:
        """Serve a table or layer in ``fp32`` from the artifact's shadow, or again in the precision of its recipe."""
        own = self._own_precisions()
        if name not in own:
            raise ConfigError(f"engine: no table or layer {name!r} (known: {', '.join(own)})")
        if precision not in ("fp32", own[name]):
            known = " or ".join(dict.fromkeys((own[name], "fp32")))
            raise ConfigError(f"engine: {name!r} can be served in {known}, got {precision!r}")
        with self._switching:
            if self._state.precisions[name] == precision:
                return
            self._state = self._switched(name, precision, self._source(precision, own[name]))

    def raised(self, *names: str) -> Engine:
        """Return an engine with these tables and layers in ``fp32`` that shares all else; this one stays as it is."""
        with self._switching:
            if names and self._shadow is None:
                self._shadow = self.artifact.read_shadow()
            other = copy.copy(self)
        other._switching = threading.Lock()
        for name in names:
            other.switch(name, "fp32")
        return other

    def _source(self, precision: str, own: str) -> Artifact:
        if precision == own:
            return self.artifact
        if self._shadow is None:
            self._shadow = self.artifact.read_shadow()
        return self._shadow

    def _switched(self, name: str, precision: str, source: Artifact) -> _State:
        state = self._state
        precisions = {**state.precisions, name: precision}
        if name in self.artifact.layers:
            layers = {**state.network.layers, name: source.layers[name]}
            return _State(state.tables, self._network(layers), precisions)
        tables = self._kernels.row_tables(self.artifact.shape.dim)
        for t, table in enumerate(self.artifact.features.table_names):
            if table == name:
                tables.add(source.tables[name].contiguous().numpy(), RowFormat(precision).code)
            else:
                tables.share(state.tables, t)
        return _State(tables, state.network, precisions)

    def _network(self, layers: dict[str, dict[str, Tensor]]) -> DenseNetwork:
        return DenseNetwork(self.artifact.shape, layers, self._kernels, self.threads)

    def _own_precisions(self) -> dict[str, str]:
        recipe = self.artifact.recipe
        tables = {name: choice.value for name, choice in self._table_choices(self.artifact)}
        return {**tables, **{name: choice.kind for name, choice in recipe.layers.items()}}

    @staticmethod
    def _table_choices(artifact: Artifact) -> list[tuple[str, RowFormat]]:
        return [(name, artifact.recipe.tables[name].format) for name in artifact.features.table_names]

    def _check(self, dense_BF: NDArray[np.float32], lookups: Lookups) -> None:
        shape = self.artifact.shape
        if dense_BF.ndim != 2 or dense_BF.shape[1] != shape.dense or dense_BF.dtype != np.float32:
            raise ConfigError(
                f"engine: expected dense features as float32 of shape (samples, {shape.dense}), "
                f"got {dense_BF.dtype} of shape {dense_BF.shape}"
            )
        if not np.isfinite(dense_BF).all():
            sample, feature = map(int, np.argwhere(~np.isfinite(dense_BF))[0])
            raise ConfigError(
                f"engine: sample {sample}: expected finite dense features, got {float(dense_BF[sample, feature])!r} for "
                f"{self.artifact.features.dense[feature].name!r}"
            )
        bags = lookups.offsets.shape[0] - 1
        if lookups.tables != shape.tables or bags != shape.tables * dense_BF.shape[0]:
            raise ConfigError(
                f"engine: expected bags for {shape.tables} tables and {dense_BF.shape[0]} samples, "
                f"got {bags} for {lookups.tables} tables"
            )

    def _bad_id(self, place: int, lookups: Lookups) -> ConfigError:
        bag = int(torch.searchsorted(lookups.offsets, place, right=True)) - 1
        table = self.artifact.features.tables[bag // lookups.samples]
        sample = bag % lookups.samples
        return ConfigError(
            f"engine: sample {sample}: table {table.name!r} has rows 0 to {table.rows - 1}, "
            f"got id {int(lookups.ids_L[place])}"
        )


class Scorer(Protocol):
    """A model in some mixture of precisions; immutable, so that threads may share it."""

    @property
    def version(self) -> str:
        """Which artifact this is; part of every answer."""
        ...

    @property
    def signature(self) -> Signature:
        """What it takes."""
        ...

    @property
    def budget(self) -> float | None:
        """Increase of normalized entropy that was allowed when it was made."""
        ...

    @property
    def population(self) -> Population | None:
        """Inputs that it was made for; None where that is not known."""
        ...

    @property
    def lowered(self) -> tuple[str, ...]:
        """Tables and layers below fp32, which can be raised."""
        ...

    def score(self, dense_BF: NDArray[np.float32], lookups: Lookups) -> NDArray[np.float32]:
        """Probabilities, float32, one for each sample."""
        ...

    def raised(self, part: str) -> Scorer:
        """Return the same model with one part in fp32; all others are shared, not copied."""
        ...

    def shadow(self) -> Scorer:
        """Return the same model in fp32 throughout."""
        ...


class EngineScorer:
    """A version, a signature and an engine."""

    def __init__(self, engine: Engine, version: str, signature: Signature | None = None) -> None:
        """``signature``: of the same artifact, where there is one already; vocabularies are sorted for it."""
        self._engine, self.version = engine, version
        self.signature = signature or _signature(engine.artifact)

    @classmethod
    def load(cls, folder: Path, threads: int) -> EngineScorer:
        """Read the artifact that ``folder`` is, or points to, at this moment."""
        folder = folder.resolve()  # a link may change while files are read
        engine = Engine.load(folder, threads)
        digest = hashlib.blake2b((folder / "artifact.toml").read_bytes(), digest_size=6)
        return cls(engine, digest.hexdigest())

    @property
    def budget(self) -> float | None:
        """Increase of normalized entropy that the recipe was chosen for, where the artifact says so."""
        return self._engine.artifact.metrics.get("budget")

    @property
    def population(self) -> Population | None:
        """Inputs of held-out samples, where the artifact has them."""
        return self._engine.artifact.population

    @property
    def lowered(self) -> tuple[str, ...]:
        """Tables and layers below fp32."""
        return tuple(name for name, precision in self._engine.precisions.items() if precision != "fp32")

    def score(self, dense_BF: NDArray[np.float32], lookups: Lookups) -> NDArray[np.float32]:
        """Probabilities."""
        return self._engine.score(dense_BF, lookups)

    def raised(self, part: str) -> EngineScorer:
        """Return the same with one part in fp32."""
        return EngineScorer(self._engine.raised(part), self.version, self.signature)

    def shadow(self) -> EngineScorer:
        """Return the same in fp32 throughout; ConfigError where the artifact has no shadow."""
        return EngineScorer(self._engine.raised(*self.lowered), self.version, self.signature)


def _signature(artifact: Artifact) -> Signature:
    features = artifact.features
    unknown = tuple(table.rows - 1 if table.unknown else None for table in features.tables)
    raw_ids = {
        table.name: RawIds(table, artifact.vocabularies.get(table.name))
        for table in features.tables
        if table.raw is not None
    }
    return Signature(
        features.sample_schema, unknown, None if features.raw == "unknown" else features, raw_ids
    )
