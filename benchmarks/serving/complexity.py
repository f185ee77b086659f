"""How much more model fits: five times the parameters and more FLOPs, in the memory and latency of a reference in fp32.

The reference has layers of a usual size over tables of some million rows. The larger model has five times as many
numbers in its tables, as int4 rows, and wider layers, in int8; widths are tried until they take too long. Layers are
drawn, not trained: this is about memory and time alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.table import Table
from torch import Tensor

from benchmarks.results import table_of
from benchmarks.serving.engines import ENGINES, Contender, Row, engine_contender
from benchmarks.serving.models import Case, WorkItems
from benchmarks.timing import Times, time_calls
from laconic.quantize.formats import (
    Artifact,
    LayerChoice,
    ModelShape,
    Recipe,
    RowFormat,
    TableChoice,
    TrainedModel,
    quantize_rows,
)
from laconic.quantize.formats.quantize import quantize_layers
from laconic.quantize.formats.trained_model import linear_layers

__all__ = ["PARTS", "Fit", "fits_table", "flops", "measure_complexity"]

_BATCH = 64
_TIMED = 96  # batches
_WIDTHS = (1.5, 2.0, 2.5, 3.0)
"""Widths of layers, in multiples of the reference's."""

PARTS = 2 + len(_WIDTHS)
"""Work items of the measurement."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A model beside the reference."""

    row: Row
    parameters: int
    flops: int

    def fits(self, reference: Fit) -> bool:
        """Whether it takes no more memory and no more time."""
        return self.row.size_bytes <= reference.row.size_bytes and self.row.p50_ms <= reference.row.p50_ms


def flops(shape: ModelShape) -> int:
    """Count those of one sample, in the layers and in the dot products between vectors."""
    layers = sum(2 * layer.weight.numel() for layer in linear_layers(shape.build()).values())
    vectors = shape.tables + (shape.dense > 0)
    return layers + vectors * (vectors - 1) * shape.dim


def measure_complexity(
    reference: Case, large: Case, rounds: int, work: WorkItems, widths: Sequence[float] = _WIDTHS
) -> list[Fit]:
    """Time the reference and larger models in turn; the reference comes first."""
    work.begin("complexity: quantizing rows to int4")
    names = large.trained.features.table_names
    packed = {}
    for number, name in enumerate(names):
        packed[name] = quantize_rows(large.trained.tables[name], RowFormat.INT4)
        work.within(number + 1, len(names))
    contenders = {"reference": (reference, ENGINES["fp32"](reference))}
    for width in widths:
        work.begin(f"complexity: layers {width:g} times as wide")
        case = _wider(large, width)
        contenders[f"{width:g}"] = case, _contender(case.trained, packed)
    work.begin(f"complexity: batch {_BATCH}, timing")
    calls = {}
    for key, (case, contender) in contenders.items():
        parts = [part.first(_BATCH) for part in case.parts[:_TIMED]]
        calls[key] = lambda i, score=contender.logits, parts=parts: score(parts[i % len(parts)])
        calls[key](0)
    seconds = time_calls(calls, rounds=rounds, turn_s=0.5, tell=work.within)
    first = reference.trained
    return [
        Fit(_row(case, contender, first, seconds[key]), _parameters(case.trained), flops(case.trained.shape))
        for key, (case, contender) in contenders.items()
    ]


def _wider(large: Case, width: float) -> Case:
    shape = large.trained.shape
    wide = shape.model_copy(
        update={
            "bottom": tuple(int(width * size) for size in shape.bottom),
            "top": tuple(int(width * size) for size in shape.top),
        }
    )
    return replace(large, trained=replace(large.trained, shape=wide, state=wide.build().state_dict()))


def _contender(trained: TrainedModel, packed: dict[str, Tensor]) -> Contender:
    recipe = Recipe.uniform(
        trained.features.table_names,
        trained.shape.layer_names(),
        table=TableChoice(format=RowFormat.INT4),
        layer=LayerChoice(kind="int8_dynamic"),
    )
    layers = quantize_layers(trained, recipe)
    return engine_contender(Artifact(trained.shape, trained.features, recipe, packed, layers))


def _parameters(trained: TrainedModel) -> int:
    tensors = [*trained.tables.values(), *trained.state.values()]
    return sum(tensor.numel() for tensor in tensors)


def _row(case: Case, contender: Contender, reference: TrainedModel, seconds: Times) -> Row:
    name = "complexity reference"
    if case.trained is not reference:
        more = _parameters(case.trained) / _parameters(reference)
        work = flops(case.trained.shape) / flops(reference.shape)
        name = f"complexity {more:.2f}x parameters, {work:.2f}x FLOPs"
    return Row.of_times(
        seconds, engine=contender.name, model=name, batch=_BATCH, size_bytes=contender.size_bytes
    )


def fits_table(fits: Sequence[Fit]) -> Table:
    """Show models beside the reference, which comes first."""
    first = fits[0]

    def fit_text(fit: Fit) -> str:
        return "" if fit is first else "yes" if fit.fits(first) else "no"

    return table_of(
        f"what fits into the memory and latency of fp32: batch {first.row.batch}, one core",
        fits,
        ("model", lambda fit: "fp32 reference" if fit is first else "laconic, int4 and int8"),
        ("parameters", lambda fit: f"{fit.parameters / 1e6:,.0f} M"),
        ("more", lambda fit: f"{fit.parameters / first.parameters:.2f}x"),
        ("MFLOP/sample", lambda fit: f"{fit.flops / 1e6:.2f}"),
        ("more", lambda fit: f"{fit.flops / first.flops:.2f}x"),
        ("size", lambda fit: f"{fit.row.size_bytes / 1e6:,.0f} MB"),
        ("of it", lambda fit: f"{fit.row.size_bytes / first.row.size_bytes:.2f}"),
        ("median", lambda fit: f"{fit.row.p50_ms:.3f} ms"),
        ("of it", lambda fit: f"{fit.row.p50_ms / first.row.p50_ms:.2f}"),
        ("fits", fit_text),
    )
