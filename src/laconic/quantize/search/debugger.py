"""The numeric debugger compares a model in low precision with fp32, part by part.

It measures three things of every table and layer, on the same samples::

    signal over noise   its output from exact inputs, low precision against fp32: SQNR in dB, cosine
    accumulated         the same of layers as they are served, after all that is before them
    harm                expected increase of NE when this part alone is in low precision

Parts are ranked by harm. The debugger also names inputs: for a table, the ids whose samples have
most of the harm, which the ids of a bag share; for the model, samples whose logits moved most.

Shape legend: ``B`` samples, ``T`` tables, ``D`` numbers of a row, ``L`` ids, ``U`` distinct ids,
``K`` inputs and ``N`` outputs of a layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from laconic.adapt.harm import Harm, expected_change, measure_harm
from laconic.data import Samples
from laconic.quantize.formats import Artifact, TrainedModel
from laconic.quantize.formats.layers import captured
from laconic.quantize.formats.trained_model import linear_layers
from laconic.quantize.search.candidates import ModelPart, described
from laconic.quantize.search.probe import EmulatedModel
from laconic.quantize.search.workbench import Progress, labels, select

__all__ = ["Debugged", "HurtId", "HurtSample", "PartError", "debug"]

_MOST = 5  # most ids of a table, and most samples, that are named


@dataclass(frozen=True, slots=True)
class HurtId:
    """An id of a table, and the harm of the samples that look it up."""

    id: int
    samples: int
    """Number of samples that look the row up."""
    share: float
    """Share of the table's harm that falls on these samples."""


@dataclass(frozen=True, slots=True)
class HurtSample:
    """A sample whose logit moved most."""

    logit: float
    """Logit in fp32."""
    low: float
    """Logit in low precision."""
    label: int
    ids: dict[str, list[int]]
    """Ids of the sample, by table."""
    worst_table: str
    """Table whose embedding is relatively furthest from that in fp32."""


@dataclass(frozen=True, slots=True)
class PartError:
    """The error that a part adds."""

    part: ModelPart
    precision: str
    sqnr_db: float
    """Signal over quantization noise in dB; infinite where nothing changed."""
    cosine: float
    """Mean cosine similarity over samples; samples without signal are left out."""
    accumulated_db: float | None
    """SQNR of a layer as it is served; None for a table, which has nothing before it."""
    logit_rms: float
    """Root mean square of the change of logits when this part alone is in low precision."""
    harm: Harm
    ids: tuple[HurtId, ...]
    """Ids of a table that hurt most; empty for a layer."""


@dataclass(frozen=True, slots=True)
class Debugged:
    """What the debugger found: all parts, the worst first."""

    samples: int
    harm: Harm
    """Harm of the whole model."""
    parts: tuple[PartError, ...]
    hurt: tuple[HurtSample, ...]


@dataclass(slots=True)
class _Noise:
    """Sums over batches of a signal and of the noise in it."""

    signal: float = 0.0
    noise: float = 0.0
    cosines: float = 0.0
    rows: int = 0

    def add(self, exact_BN: Tensor, low_BN: Tensor) -> None:
        self.signal += float(exact_BN.double().square().sum())
        self.noise += float((low_BN.double() - exact_BN.double()).square().sum())
        some_B = (exact_BN.square().sum(dim=1) > 0) & (low_BN.square().sum(dim=1) > 0)
        self.cosines += float(nn.functional.cosine_similarity(exact_BN[some_B], low_BN[some_B]).sum())
        self.rows += int(some_B.sum())

    @property
    def db(self) -> float:
        if not self.noise:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf

    @property
    def cosine(self) -> float:
        return self.cosines / self.rows if self.rows else 1.0


@dataclass(slots=True)
class _Gathered:
    """What was measured of one part, over batches."""

    alone: _Noise = field(default_factory=_Noise)
    accumulated: _Noise = field(default_factory=_Noise)
    logits: list[Tensor] = field(default_factory=list)


def debug(
    trained: TrainedModel, artifact: Artifact, batches: tuple[Samples, ...], progress: Progress
) -> Debugged:
    """Compare on these samples. The artifact may be of another snapshot of the same model."""
    shadow = _Shadow(trained, artifact)
    exact, low = [], []
    embedded = trained.embed_batches(samples.lookups for samples in batches)
    for k, (samples, exact_BTD) in enumerate(zip(batches, embedded, strict=True)):
        with torch.inference_mode():
            exact_B, low_B = shadow.compare(samples, exact_BTD)
        exact.append(exact_B)
        low.append(low_B)
        progress("comparing with the shadow", k + 1, len(batches))
    exact_B, low_B, label_B = torch.cat(exact), torch.cat(low), labels(batches)
    parts = [
        _part_error(part, precision, shadow.gathered[part], exact_B, batches, t)
        for t, (part, precision) in enumerate(_parts(artifact))
    ]
    ranked = sorted(parts, key=lambda error: error.harm.expected, reverse=True)
    hurt = _hurt_samples(shadow, batches, exact_B, low_B, label_B)
    return Debugged(len(label_B), measure_harm(exact_B, low_B, label_B), tuple(ranked), hurt)


def _parts(artifact: Artifact) -> list[tuple[ModelPart, str]]:
    """Return all parts with their precisions, tables first, in the order of the model."""
    recipe = artifact.recipe
    tables = [
        (ModelPart("table", name), described(recipe.tables[name])) for name in artifact.features.table_names
    ]
    layers = artifact.shape.layer_names()
    return tables + [(ModelPart("layer", name), described(recipe.layers[name])) for name in layers]


class _Shadow:
    """Both models, and what was measured of their parts."""

    def __init__(self, trained: TrainedModel, artifact: Artifact) -> None:
        self._trained, self.low = trained, EmulatedModel(artifact)
        self._exact = trained.dense_model()
        self.names = artifact.features.table_names
        self._layers = linear_layers(self._exact)
        self.gathered = {part: _Gathered() for part, _ in _parts(artifact)}

    def compare(self, samples: Samples, exact_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """Measure every part on a batch, of which there are embeddings in fp32.

        Returns its logits in fp32 and in low precision.
        """
        dense_BF, low_BTD = samples.dense_BF, self.low.embed(samples.lookups)
        with captured(self._exact, self._layers) as exact_seen:
            exact_B = self._exact(dense_BF, exact_BTD)
        with captured(self.low.dense, self._layers) as low_seen:
            low_B = self.low.dense(dense_BF, low_BTD)
        bottom = self._exact.dense_part(dense_BF)
        for t, name in enumerate(self.names):
            gathered = self.gathered[ModelPart("table", name)]
            gathered.alone.add(exact_BTD[:, t], low_BTD[:, t])
            mixed_BTD = exact_BTD.clone()
            mixed_BTD[:, t] = low_BTD[:, t]
            gathered.logits.append(self._exact.head(bottom, mixed_BTD))
        for name in self._layers:
            gathered = self.gathered[ModelPart("layer", name)]
            inputs_BK, outputs_BN = exact_seen[name]
            low_layer = self.low.dense.get_submodule(name)
            gathered.alone.add(outputs_BN, low_layer(inputs_BK))
            gathered.accumulated.add(outputs_BN, low_seen[name][1])
            exact_layer = self._exact.get_submodule(name)
            self._exact.set_submodule(name, low_layer)
            gathered.logits.append(self._exact(dense_BF, exact_BTD))
            self._exact.set_submodule(name, exact_layer)
        return exact_B, low_B

    def furthest(self, samples: Samples, b: int) -> int:
        """Return the table whose embedding of a sample is relatively furthest from that in fp32."""
        one = select(samples, torch.tensor([b]))
        exact_TD, low_TD = self._trained.embed(one.lookups)[0], self.low.embed(one.lookups)[0]
        size_T = exact_TD.norm(dim=1)
        return int(((low_TD - exact_TD).norm(dim=1) / size_T.clamp(min=1e-30)).argmax())


def _part_error(
    part: ModelPart,
    precision: str,
    gathered: _Gathered,
    exact_B: Tensor,
    batches: tuple[Samples, ...],
    t: int,
) -> PartError:
    """Sum up what was measured of the ``t``-th part."""
    changed_B = torch.cat(gathered.logits)
    table = part.kind == "table"
    return PartError(
        part=part,
        precision=precision,
        sqnr_db=gathered.alone.db,
        cosine=gathered.alone.cosine,
        accumulated_db=None if table else gathered.accumulated.db,
        logit_rms=float((changed_B.double() - exact_B.double()).square().mean().sqrt()),
        harm=measure_harm(exact_B, changed_B, labels(batches)),
        ids=_hurt_ids(batches, t, exact_B, changed_B) if table else (),
    )


def _hurt_ids(batches: tuple[Samples, ...], t: int, exact_B: Tensor, changed_B: Tensor) -> tuple[HurtId, ...]:
    """Return the ids of a table whose samples have most of its harm."""
    harm_B = torch.nan_to_num(expected_change(exact_B, changed_B))
    bags = [samples.lookups.table(t) for samples in batches]
    size_B = torch.cat([offsets.diff() for _, offsets in bags])
    ids_U, places_L = torch.unique(torch.cat([ids_L for ids_L, _ in bags]), return_inverse=True)
    sample_L = torch.repeat_interleave(torch.arange(len(size_B)), size_B)
    each_L = (harm_B / size_B.clamp(min=1))[sample_L]
    harm_U = torch.zeros(len(ids_U), dtype=torch.float64).index_add_(0, places_L, each_L)
    total = float(harm_U.sum())
    if not total:
        return ()
    worst = harm_U.topk(min(_MOST, len(ids_U))).indices.tolist()
    samples_U = torch.bincount(places_L, minlength=len(ids_U))
    return tuple(HurtId(int(ids_U[u]), int(samples_U[u]), float(harm_U[u]) / total) for u in worst)


def _hurt_samples(
    shadow: _Shadow, batches: tuple[Samples, ...], exact_B: Tensor, low_B: Tensor, label_B: Tensor
) -> tuple[HurtSample, ...]:
    moved_B = torch.nan_to_num((low_B - exact_B).abs(), nan=math.inf)
    first_of = torch.tensor([0, *(len(samples) for samples in batches)]).cumsum(0)
    hurt = []
    for b in moved_B.topk(min(_MOST, len(moved_B))).indices.tolist():
        if not moved_B[b]:
            break
        batch = int(torch.searchsorted(first_of, b, right=True)) - 1
        here, samples = b - int(first_of[batch]), batches[batch]
        ids = {}
        for t, name in enumerate(shadow.names):
            ids_L, offsets = samples.lookups.table(t)
            ids[name] = ids_L[int(offsets[here]) : int(offsets[here + 1])].tolist()
        worst = shadow.names[shadow.furthest(samples, here)]
        hurt.append(HurtSample(float(exact_B[b]), float(low_B[b]), int(label_B[b]), ids, worst))
    return tuple(hurt)
