"""Engines that serve whole models: throughput, latency of single samples, size and accuracy.

It also measures how much more model fits into the memory and latency of a reference in fp32. The
reference has layers of a usual size over tables of some million rows. The larger model has five
times as many numbers in its tables, as int4 rows, and wider layers in int8. Widths are tried until
they take too long. These layers are drawn, not trained, because only memory and time matter here.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.table import Table
from torch import Tensor

from benchmarks.harness import data_sets, grouped, table_of
from benchmarks.serving.engines import (
    BATCH,
    ENGINES,
    GENERATED,
    EngineBatch,
    LoadedEngine,
    Say,
    ServedModel,
    ServingRow,
    engine_contender,
    forget_compiled,
    large_settings,
    reference_case,
    run_settings,
    trained_case,
    with_precisions,
)
from benchmarks.timing import Times, one_core, one_thread, time_calls
from laconic import kernels
from laconic.quantize.formats import (
    Artifact,
    LayerPrecision,
    ModelShape,
    Recipe,
    RowFormat,
    TablePrecision,
    TrainedModel,
    quantize_rows,
)
from laconic.quantize.formats.quantize import quantize_layers
from laconic.quantize.formats.trained_model import linear_layers
from laconic.train.metrics import Evaluation
from laconic.train.score_histogram import ScoreHistogram

_TIMED = 96  # batches to time with; all are evaluated on
_TRAINING_STEPS = 100
_LARGE_STEPS = 200  # its rows are many, and seldom looked up
_DIM, _BAG, _BAGS, _BAG_ROWS = 64, 32, 256, 4_000_000
_FORMATS = (RowFormat.FP32, RowFormat.INT8, RowFormat.INT4)
_FIT_BATCH = 64
_WIDTHS = (1.5, 2.0, 2.5, 3.0)
"""Widths of layers, in multiples of the reference's."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A model beside the reference."""

    row: ServingRow
    parameters: int
    flops: int

    def fits(self, reference: Fit) -> bool:
        """Whether it takes no more memory and no more time."""
        return self.row.size_bytes <= reference.row.size_bytes and self.row.p50_ms <= reference.row.p50_ms


@dataclass(frozen=True, slots=True)
class ServingResult:
    """Rows of all engines, and models beside the reference."""

    rows: list[ServingRow]
    fits: list[Fit]
    """The reference, then larger models."""

    def all_rows(self) -> list[ServingRow]:
        """Return rows of everything that was timed."""
        return [*self.rows, *(fit.row for fit in self.fits)]


def run_serving_benchmark(
    *, data: Path | None, full: bool, engines: Sequence[str], say: Say
) -> ServingResult:
    """Measure every engine on every model; engines that are not installed are left out."""
    rounds, batches = (15, (1, 64, BATCH)) if full else (5, (1, BATCH))
    rows = []
    with data_sets(data, generated=GENERATED) as sets, one_thread():
        most = None if full else _TRAINING_STEPS
        runs = {name: (run_settings(set_), most) for name, set_ in sets.items()}
        runs["large"] = large_settings(), _LARGE_STEPS
        for name, (settings, most) in runs.items():
            case, bench = trained_case(name, settings, most, say)
            if "laconic" in engines:
                case = with_precisions(case, bench, say)
            del bench
            with one_core():
                rows += measure_engines(case, engines, batches, rounds, say)
        with one_core():
            say("complexity: drawing the reference, quantizing rows of the larger model")
            fits = measure_complexity(reference_case(_TIMED), case, rounds, say)
            del case
            gc.collect()
            say(f"bags: drawing {_BAG_ROWS:,} rows, timing")
            rows += measure_bags(_BAG_ROWS, rounds)
    return ServingResult(rows, fits)


def measure_engines(
    case: ServedModel, engines: Sequence[str], batches: Sequence[int], rounds: int, say: Say
) -> list[ServingRow]:
    """Score a model with every engine: how well, and how fast with batches of these sizes."""
    forget_compiled()
    contenders = []
    for name in engines:
        say(f"{case.name}: loading {name}")
        try:
            contenders.append(ENGINES[name](case))
        except ModuleNotFoundError as error:
            say(f"{case.name}: no {error.name}, {name} is left out")
    accuracy = {}
    for contender in contenders:
        say(f"{case.name}: evaluating {contender.name}")
        accuracy[contender.name] = _evaluate(contender, case)
    rows = []
    for batch in batches:
        parts = [part.first(batch) for part in case.batches[:_TIMED]]
        for contender in contenders:
            say(f"{case.name}: batch {batch}, warming {contender.name} up")
            for part in parts[:3]:
                contender.logits(part)
        say(f"{case.name}: batch {batch}, timing")
        calls = {contender.name: _calls(contender, parts) for contender in contenders}
        seconds = time_calls(calls, rounds=rounds, turn_s=0.5)
        for contender in contenders:
            rows.append(
                ServingRow.of_times(
                    seconds[contender.name],
                    engine=contender.name,
                    model=case.name,
                    batch=batch,
                    size_bytes=contender.size_bytes,
                    found=accuracy[contender.name],
                )
            )
    return rows


def _calls(contender: LoadedEngine, parts: list[EngineBatch]) -> Callable[[int], object]:
    return lambda i: contender.logits(parts[i % len(parts)])


def _evaluate(contender: LoadedEngine, case: ServedModel) -> Evaluation:
    samples = ScoreHistogram()
    for part in case.batches:
        assert len(part.label_B) == BATCH
        samples.add(contender.logits(part).reshape(-1), part.label_B)
    return Evaluation.of(samples)


def flops(shape: ModelShape) -> int:
    """Count those of one sample, in the layers and in the dot products between vectors."""
    layers = sum(2 * layer.weight.numel() for layer in linear_layers(shape.build()).values())
    vectors = shape.tables + (shape.dense > 0)
    return layers + vectors * (vectors - 1) * shape.dim


def measure_complexity(
    reference: ServedModel,
    large: ServedModel,
    rounds: int,
    say: Say,
    widths: Sequence[float] = _WIDTHS,
) -> list[Fit]:
    """Time the reference and larger models in turn; the reference comes first."""
    trained = large.trained
    packed = {
        name: quantize_rows(trained.tables[name][:], RowFormat.INT4) for name in trained.features.table_names
    }
    contenders = {"reference": (reference, ENGINES["fp32"](reference))}
    for width in widths:
        say(f"complexity: layers {width:g} times as wide")
        case = _wider(large, width)
        contenders[f"{width:g}"] = case, _contender(case.trained, packed)
    say(f"complexity: batch {_FIT_BATCH}, timing")
    calls = {}
    for key, (case, contender) in contenders.items():
        calls[key] = _calls(contender, [part.first(_FIT_BATCH) for part in case.batches[:_TIMED]])
        calls[key](0)
    seconds = time_calls(calls, rounds=rounds, turn_s=0.5)
    first = reference.trained
    return [
        Fit(_row(case, contender, first, seconds[key]), _parameters(case.trained), flops(case.trained.shape))
        for key, (case, contender) in contenders.items()
    ]


def _wider(large: ServedModel, width: float) -> ServedModel:
    shape = large.trained.shape
    wide = shape.model_copy(
        update={
            "bottom": tuple(int(width * size) for size in shape.bottom),
            "top": tuple(int(width * size) for size in shape.top),
        }
    )
    return replace(large, trained=replace(large.trained, shape=wide, state=wide.build().state_dict()))


def _contender(trained: TrainedModel, packed: dict[str, Tensor]) -> LoadedEngine:
    recipe = Recipe.uniform(
        trained.features.table_names,
        trained.shape.layer_names(),
        table=TablePrecision(format=RowFormat.INT4),
        layer=LayerPrecision(kind="int8_dynamic"),
    )
    layers = quantize_layers(trained, recipe)
    return engine_contender(Artifact(trained.shape, trained.features, recipe, packed, layers))


def _parameters(trained: TrainedModel) -> int:
    tensors = [*trained.tables.values(), *trained.state.values()]
    return sum(tensor.shape.numel() for tensor in tensors)


def _row(case: ServedModel, contender: LoadedEngine, reference: TrainedModel, seconds: Times) -> ServingRow:
    name = "complexity reference"
    if case.trained is not reference:
        more = _parameters(case.trained) / _parameters(reference)
        work = flops(case.trained.shape) / flops(reference.shape)
        name = f"complexity {more:.2f}x parameters, {work:.2f}x FLOPs"
    return ServingRow.of_times(
        seconds, engine=contender.name, model=name, batch=_FIT_BATCH, size_bytes=contender.size_bytes
    )


def measure_bags(rows: int, rounds: int) -> list[ServingRow]:
    """Time torch's EmbeddingBag in fp32, and our kernel in fp32, int8 and int4, by themselves.

    Bags are of 32 ids, drawn evenly from one table that is larger than the cache.
    """
    table_RD = torch.empty(rows, _DIM).normal_(0, 0.05)
    native = kernels.active()
    offsets = torch.arange(0, _BAGS * _BAG + 1, _BAG)
    ids = [torch.randint(0, rows, (_BAGS * _BAG,)) for _ in range(64)]
    out = np.empty((_BAGS, 1, _DIM), np.float32)

    def eager(i: int) -> object:
        with torch.inference_mode():
            return torch.nn.functional.embedding_bag(
                ids[i % 64], table_RD, offsets, mode="sum", include_last_offset=True
            )

    calls: dict[str, Callable[[int], object]] = {"fp32": eager}
    sizes = {"fp32": 4 * table_RD.numel()}
    for format in _FORMATS:
        packed = quantize_rows(table_RD, format)
        held = native.row_tables(_DIM)
        held.add(packed.numpy(), format.code)
        name = f"laconic {format}"
        sizes[name] = packed.numel()
        calls[name] = lambda i, held=held: native.embedding_bags(  # type: ignore[misc]
            held, kernels.RowBags(ids[i % 64].numpy(), offsets.numpy()), None, out, 0, 1
        )
    seconds = time_calls(calls, rounds=rounds, turn_s=0.3)
    return [
        ServingRow.of_times(
            times,
            engine=name,
            model=f"bags of {_BAG}, {rows:,} x {_DIM}",
            batch=_BAGS,
            size_bytes=sizes[name],
        )
        for name, times in seconds.items()
    ]


def render(result: ServingResult) -> RenderableType:
    """Make one table for each model and batch, and one for what fits."""
    tables = [_table(title, rows) for title, rows in grouped(result.rows, _title).items()]
    return Group(*tables, *([_fits_table(result.fits)] if result.fits else []))


def _title(row: ServingRow) -> str:
    return f"{row.model}: batch {row.batch}, one core"


def _table(title: str, rows: list[ServingRow]) -> Table:
    first = rows[0]

    def change(row: ServingRow) -> str:
        return "" if row.ne is None or first.ne is None else f"{row.ne / first.ne - 1:+.3%}"

    return table_of(
        title,
        rows,
        ("engine", lambda row: row.engine),
        ("samples/s", lambda row: f"{row.samples_per_s:,.0f}"),
        ("faster", lambda row: f"{row.samples_per_s / first.samples_per_s:.2f}x"),
        ("median", lambda row: f"{row.p50_ms:.3f} ms"),
        ("99 %", lambda row: f"{row.p99_ms:.3f} ms"),
        ("size", lambda row: f"{row.size_bytes / 1e6:,.1f} MB"),
        ("of fp32", lambda row: f"{row.size_bytes / first.size_bytes:.1%}"),
        ("NE", lambda row: "" if row.ne is None else f"{row.ne:.5f}"),
        ("change", change),
        ("AUC", lambda row: "" if row.auc is None else f"{row.auc:.5f}"),
    )


def _fits_table(fits: Sequence[Fit]) -> Table:
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
