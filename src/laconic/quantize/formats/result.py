"""The result of ``laconic quantize``: a JSON file, and these classes.

::

    {
      "kind": "quantize",
      "title": "run", "objective": "size", "budget": 0.0005, "seed": 0, "batch": 256,
      "samples": {"probe": 8192, "search": 86295, "verification": 86355},
      "exact": {"ne": 0.7722, "auc": 0.8070, "bytes": 214561028, "us": 2310.0},
      "low": {"ne": 0.7713, "auc": 0.8068, "bytes": 18704264, "us": 1970.0},
      "predicted": 0.00039, "gap": 0.0,
      "harm": {"measured": -0.0012, "measured_se": 0.00016,
               "expected": 0.00049, "expected_se": 0.000003},
      "attempts": [
        {"budget": 0.0005, "bytes": 18702376, "predicted": 0.000498,
         "search": {...}, "verification": null}],
      "parts": [
        {"kind": "table", "name": "c_user", "rows": 105284, "chosen": 4, "reason": "...",
         "candidates": [
           {"label": "fp32", "bytes": 26952704, "us": 0.0, "harm": {...}, "estimate": 0.0}]}],
      "pareto": [
        {"objective": "size", "budget": 0.000005, "bytes": 33351424, "us": -300.0,
         "harm": 0.0000049}]
    }

``us`` of candidates and of ``pareto`` are microseconds of a batch, less those in fp32. Harm is the
increase of normalized entropy, as a share of it; null where a candidate cannot hold the part.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from laconic.config import Bytes, Count, Settings, Text

__all__ = [
    "Attempt",
    "HarmFigures",
    "ModelFigures",
    "Objective",
    "ParetoPoint",
    "QuantizeCandidate",
    "QuantizePart",
    "QuantizeResult",
    "SampleCounts",
]

Objective = Literal["size", "latency"]
"""The quantity that a search makes small."""


class HarmFigures(Settings):
    """Increase of normalized entropy, measured on labels and expected by the model in fp32."""

    measured: float
    measured_se: float
    expected: float
    expected_se: float


class ModelFigures(Settings):
    """Accuracy of a model on the verification half, its size and its time."""

    ne: float
    auc: float
    bytes: Bytes
    us: float
    """Microseconds that a batch takes in the engine."""


class SampleCounts(Settings):
    """Numbers of held-out samples."""

    probe: Count
    """Samples of the search half on which each candidate was measured."""
    search: Count
    verification: Count


class Attempt(Settings):
    """A combination of candidates that was measured."""

    budget: float
    """Budget that the combination was solved for."""
    bytes: Bytes
    predicted: float
    search: HarmFigures | None
    """Harm on the search half; null where a logit was not finite, here and below."""
    verification: HarmFigures | None
    """Harm on the verification half; null also where the search half refused it already."""


class QuantizeCandidate(Settings):
    """A precision in which a part can be stored and computed."""

    label: Text
    bytes: Bytes
    us: float
    harm: HarmFigures | None
    estimate: float | None


class QuantizePart(Settings):
    """A table or a layer, with all its candidates."""

    kind: Literal["table", "layer"]
    name: Text
    rows: Count | None
    """Rows of a table; null for a layer."""
    chosen: Count
    """Index of the candidate that was chosen."""
    reason: Text
    candidates: tuple[QuantizeCandidate, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.chosen >= len(self.candidates):
            raise ValueError(f"chosen: expected one of {len(self.candidates)} candidates, got {self.chosen}")
        return self

    @property
    def precision(self) -> QuantizeCandidate:
        """The candidate that was chosen."""
        return self.candidates[self.chosen]


class ParetoPoint(Settings):
    """The best combination for one budget."""

    objective: Objective
    budget: float
    bytes: Bytes
    us: float
    """Microseconds of a batch, less those in fp32."""
    harm: float


class QuantizeResult(Settings):
    """Everything that was measured, chosen and verified."""

    kind: Literal["quantize"] = "quantize"
    title: Text
    objective: Objective
    budget: float
    seed: int
    batch: Count
    """Number of samples in the batch whose time is measured."""
    samples: SampleCounts
    exact: ModelFigures
    low: ModelFigures
    predicted: float
    gap: float
    harm: HarmFigures
    """Harm on the verification half."""
    attempts: tuple[Attempt, ...]
    parts: tuple[QuantizePart, ...] = Field(min_length=1)
    pareto: tuple[ParetoPoint, ...]

    @property
    def share(self) -> float:
        """Bytes of the artifact as a share of those in fp32."""
        return self.low.bytes / self.exact.bytes

    @property
    def looks(self) -> int:
        """Number of combinations that were scored on the verification half."""
        return sum(attempt.verification is not None for attempt in self.attempts)
