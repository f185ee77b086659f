"""What the server asks of a model, and what the watch asks of it beyond that.

Shape legend: ``B`` samples, ``F`` dense features.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from laconic.data import Categorical, Schema
from laconic.lookups import Lookups
from laconic.quantize.formats import Artifact
from laconic.quantize.formats.population import Population
from laconic.quantize.formats.raw_ids import RawIds
from laconic.serve.engine import Engine
from laconic.serve.signature import Signature

__all__ = ["EngineScorer", "Scorer"]


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
    schema = Schema(
        tuple(feature.name for feature in features.dense),
        tuple(Categorical(table.name, table.rows, bag=table.bag) for table in features.tables),
    )
    unknown = tuple(table.rows - 1 if table.unknown else None for table in features.tables)
    raw_ids = {
        table.name: RawIds(table, artifact.vocabularies.get(table.name))
        for table in features.tables
        if table.raw is not None
    }
    return Signature(schema, unknown, None if features.raw == "unknown" else features, raw_ids)
