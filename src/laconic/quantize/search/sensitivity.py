"""Sensitivity: what every candidate takes and harms, measured once with all other parts in fp32.

Measurements go into a file as they are made, and a search that was interrupted goes on from there::

    {"version": 1, "of": "<digest of model, samples and machine>"}
    {"kind": "table", "name": "c_user", "label": "int4 greedy",
     "bytes": 3315888, "us": -41.2, "harm": {...}}

Each measurement is one line (shown here on two). The first line says what was measured; a file of
something else is replaced. A line that was cut short is measured again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from laconic.adapt.harm import Harm, measure_harm
from laconic.errors import ConfigError
from laconic.files import write_whole
from laconic.quantize.formats.layers import tensor_shapes
from laconic.quantize.formats.recipe import LayerPrecision, TablePrecision
from laconic.quantize.formats.rows import quantize_rows
from laconic.quantize.formats.trained_model import TrainedModel, linear_layers
from laconic.quantize.search.candidates import Candidate, ModelPart, candidates
from laconic.quantize.search.probe import Probe
from laconic.quantize.search.workbench import Progress, no_progress

__all__ = ["MeasuredCandidate", "MeasurementFile", "measure_candidates", "stored_bytes"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class MeasuredCandidate:
    """A candidate with its size, its time and its harm."""

    candidate: Candidate
    bytes: int
    """Bytes that the part is stored in."""
    us: float
    """Microseconds of a batch, less those with the part in fp32; below 0 is faster."""
    harm: Harm


class MeasurementFile:
    """Measurements of one model on one set of samples."""

    def __init__(self, path: Path, of: str, *, fresh: bool = False) -> None:
        """``of`` says what is measured; ``fresh`` ignores what the file has."""
        self.path, self._of = path, of
        self._found: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.forgotten = 0
        """Number of measurements of something else that the file had."""
        lines = [] if fresh or not path.exists() else list(_lines(path))
        if lines and lines[0] == self._header:
            self._found = {_key(line): line for line in lines[1:]}
        elif lines:
            self.forgotten = len(lines) - 1
        text = "".join(json.dumps(line) + "\n" for line in [self._header, *self._found.values()])
        write_whole(path, text)

    @property
    def _header(self) -> dict[str, Any]:
        return {"version": _VERSION, "of": self._of}

    def __len__(self) -> int:
        return len(self._found)

    def get(self, candidate: Candidate) -> MeasuredCandidate | None:
        """Return the measurement that the file has; None where it has none."""
        line = self._found.get((candidate.part.kind, candidate.part.name, candidate.label))
        if line is None:
            return None
        return MeasuredCandidate(candidate, line["bytes"], line["us"], Harm(**line["harm"]))

    def add(self, measurement: MeasuredCandidate) -> None:
        """Append a measurement to the file at once."""
        part, harm = measurement.candidate.part, asdict(measurement.harm)
        line: dict[str, Any] = {"kind": part.kind, "name": part.name, "label": measurement.candidate.label}
        line |= {"bytes": measurement.bytes, "us": measurement.us, "harm": harm}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self._found[_key(line)] = line


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Return the complete lines; a file that begins otherwise is refused, not overwritten."""
    for number, text in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines()):
        try:
            line = json.loads(text)
            if number and set(line) != {"kind", "name", "label", "bytes", "us", "harm"}:
                raise ValueError
            if not number and set(line) != {"version", "of"}:
                raise ValueError
        except (ValueError, TypeError):
            if not number:
                raise ConfigError(
                    f"{path}: expected measurements of laconic quantize, got {text[:60]!r}; choose another file"
                ) from None
            continue  # cut short by a kill or a full disk
        yield line


def _key(line: dict[str, Any]) -> tuple[str, str, str]:
    return line["kind"], line["name"], line["label"]


def measure_candidates(
    probe: Probe,
    latency_us: Callable[[Candidate], float],
    file: MeasurementFile,
    progress: Progress = no_progress,
) -> list[list[MeasuredCandidate]]:
    """Measure what the file does not have yet; return the candidates of each part in one list."""
    trained = probe.trained
    parts: dict[ModelPart, list[MeasuredCandidate]] = {}
    wanted = candidates(probe.names, trained.shape.layer_names())
    for done, candidate in enumerate(wanted, start=1):
        found = file.get(candidate)
        if found is None:
            found = MeasuredCandidate(
                candidate, stored_bytes(trained, candidate), latency_us(candidate), _harm(probe, candidate)
            )
            file.add(found)
        parts.setdefault(candidate.part, []).append(found)
        progress("measuring candidates", done, len(wanted))
    return list(parts.values())


def _harm(probe: Probe, candidate: Candidate) -> Harm:
    if candidate.precision in (TablePrecision(), LayerPrecision()):
        return Harm(0.0, 0.0, 0.0, 0.0, len(probe.label_B))
    try:
        if isinstance(candidate.precision, TablePrecision):
            quantize_rows(probe.largest_row(candidate.part.name), candidate.precision.format)
        changed_B = probe.logits_with(candidate)
    except ConfigError:  # beyond what the format holds
        return Harm(math.inf, 0.0, math.inf, 0.0, len(probe.label_B))
    return measure_harm(probe.exact_B, changed_B, probe.label_B)


def stored_bytes(trained: TrainedModel, candidate: Candidate) -> int:
    """Return the bytes that a part takes in the candidate's precision."""
    name, precision = candidate.part.name, candidate.precision
    if isinstance(precision, TablePrecision):
        return len(trained.tables[name]) * precision.format.row_bytes(trained.shape.dim)
    layer = linear_layers(trained.shape.build())[name]
    shapes = tensor_shapes(precision, layer.out_features, layer.in_features, bias=layer.bias is not None)
    return sum(kind.itemsize * math.prod(shape) for kind, shape in shapes.values())
