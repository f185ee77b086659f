"""The engine scores samples with an artifact, every table and layer in its own precision.

An engine is never changed once it is made, so any number of threads may share it. A server that
needs a table or layer in fp32 replaces its engine by another one, which shares everything else.
Shape legend: ``B`` samples, ``F`` dense features, ``T`` tables, ``D`` numbers of an embedding.
"""

from __future__ import annotations

import copy
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from laconic import kernels
from laconic.errors import ConfigError
from laconic.lookups import Lookups
from laconic.quantize.formats import Artifact, RowFormat, read_artifact
from laconic.quantize.formats.features import Population, RawIds
from laconic.serve.dense_network import DenseNetwork
from laconic.serve.signature import Signature

__all__ = ["Engine"]


class Engine:
    """A model that is ready to score."""

    def __init__(self, artifact: Artifact, *, threads: int = 1) -> None:
        """``threads`` is the largest number of threads that one call uses."""
        if threads < 1:
            raise ConfigError(f"engine: expected at least one thread, got {threads!r}")
        self.artifact, self.threads = artifact, threads
        recipe, names = artifact.recipe, artifact.features.table_names
        self.precisions = {name: recipe.tables[name].format.value for name in names}
        """Precision in which every table and layer is computed, by name."""
        self.precisions |= {name: layer.kind for name, layer in recipe.layers.items()}
        self._kernels = kernels.active()
        self._tables = self._kernels.row_tables(artifact.shape.dim)
        for name in names:
            self._tables.add(artifact.tables[name].contiguous().numpy(), recipe.tables[name].format.code)
        self._network = DenseNetwork(artifact.shape, artifact.layers, self._kernels, threads)

    @classmethod
    def load(cls, folder: str | Path, threads: int = 1) -> Engine:
        """Read the artifact in a folder, or behind a link; ``FormatError`` where it is damaged."""
        resolved = Path(folder).resolve()  # a link may change while files are read
        return cls(read_artifact(resolved), threads=threads)

    @property
    def version(self) -> str:
        """Name of the artifact, which is part of every answer."""
        return self.artifact.version

    @cached_property
    def signature(self) -> Signature:
        """What requests must bring. The first use sorts all vocabularies; ``raised`` keeps them."""
        features = self.artifact.features
        raw_ids = {
            table.name: RawIds(table, self.artifact.vocabularies.get(table.name))
            for table in features.tables
            if table.raw is not None
        }
        return Signature(
            features.sample_schema,
            tuple(table.rows - 1 if table.unknown else None for table in features.tables),
            None if features.raw == "unknown" else features,
            raw_ids,
        )

    @property
    def budget(self) -> float | None:
        """Increase of normalized entropy that the recipe was chosen for, where it is known."""
        return self.artifact.metrics.get("budget")

    @property
    def population(self) -> Population | None:
        """Distribution of the inputs that the artifact was made for, where it is known."""
        return self.artifact.population

    @property
    def lowered(self) -> tuple[str, ...]:
        """Tables and layers below fp32, which ``raised`` can raise."""
        return tuple(name for name, precision in self.precisions.items() if precision != "fp32")

    def score(self, dense_BF: NDArray[np.float32], lookups: Lookups) -> NDArray[np.float32]:
        """Probabilities, one for each sample.

        ``ConfigError`` for shapes and ids that the model does not have.
        """
        logits_B = self.logits(dense_BF, lookups)
        with np.errstate(over="ignore"):
            return np.float32(1.0) / (np.float32(1.0) + np.exp(-logits_B))

    def logits(self, dense_BF: NDArray[np.float32], lookups: Lookups) -> NDArray[np.float32]:
        """Logits, one for each sample."""
        shape = self.artifact.shape
        self._check(dense_BF, lookups)
        first = self._network.own_vectors
        vectors_BVD = np.empty((len(dense_BF), first + shape.tables, shape.dim), np.float32)
        mean = shape.pooling == "mean"
        bags = kernels.RowBags(lookups.ids_L.numpy(), lookups.offsets.numpy(), mean=mean)
        bad = self._kernels.embedding_bags(self._tables, bags, None, vectors_BVD, first, self.threads)
        if bad >= 0:
            raise self._bad_id(bad, lookups)
        return self._network.logits(np.ascontiguousarray(dense_BF), vectors_BVD)

    def raised(self, *names: str) -> Engine:
        """Return the same model with these tables and layers in fp32; all others are shared.

        ``ConfigError`` for a name that the model does not have, or if the artifact has no shadow.
        """
        if strange := [name for name in names if name not in self.precisions]:
            known = ", ".join(self.precisions)
            raise ConfigError(f"engine: no table or layer {strange[0]!r} (known: {known})")
        changed = {name for name in names if self.precisions[name] != "fp32"}
        exact = self._exact if changed else self.artifact
        other = copy.copy(self)
        other.precisions = {**self.precisions, **dict.fromkeys(changed, "fp32")}
        if layers := {name: exact.layers[name] for name in changed & exact.layers.keys()}:
            layers = {**self._network.layers, **layers}
            other._network = DenseNetwork(exact.shape, layers, self._kernels, self.threads)
        if changed & exact.tables.keys():
            other._tables = self._kernels.row_tables(exact.shape.dim)
            for t, name in enumerate(exact.features.table_names):
                if name in changed:
                    other._tables.add(exact.tables[name].contiguous().numpy(), RowFormat.FP32.code)
                else:
                    other._tables.share(self._tables, t)
        return other

    def shadow(self) -> Engine:
        """Return the same model in fp32 throughout; ``ConfigError`` as for ``raised``."""
        return self.raised(*self.lowered)

    @cached_property
    def _exact(self) -> Artifact:
        return self.artifact.read_shadow()

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
        if lookups.weights_L is not None:
            raise ConfigError("engine: expected lookups without weights, got weights; serve plain bags")
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
