"""Settings of ``laconic simulate``: a model, its machines, and the clusters to imagine.

Codec figures that are not given are measured on the machine at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Self

from pydantic import Field, model_validator

from laconic.codecs import BoundedRows
from laconic.config import Settings
from laconic.cost.frequencies import Frequencies
from laconic.cost.measure import CodecFigures, measure_codec, measure_dense
from laconic.errors import ConfigError
from laconic.plan.simulate import ModelLoad

__all__ = ["Scenario", "model_of"]

_MOST_ROWS = 10**15
Positive = Annotated[float, Field(gt=0)]
Ranks = Annotated[int, Field(ge=1, le=1 << 20)]


class Scenario(Settings):
    """A model, its machines, and the clusters to imagine."""

    rows: tuple[Annotated[int, Field(ge=1, le=_MOST_ROWS)], ...] | None = Field(default=None, min_length=1)
    """Rows of each table; by default those of Criteo Terabyte."""

    total_rows: int | None = Field(default=None, ge=1, le=_MOST_ROWS)
    """Number of rows that all tables are scaled to, together."""

    zipf: float = Field(default=1.05, ge=0, le=10)
    """Skew of lookups: row k is looked up in proportion to k ** -zipf."""

    lookups_per_sample: Positive = 1.0
    """Mean number of ids of a sample in each table."""

    dim: int = Field(default=64, ge=1)
    """Dimensions of a row."""

    batch: int = Field(default=2048, ge=1)
    """Samples of one rank in a step."""

    compute_ms: Positive = 20.0
    """Computation of a step without communication, in milliseconds, measured on one device."""

    dense_parameters: int = Field(default=2_400_000, ge=0)
    """Number of dense parameters, whose gradients are summed over all ranks."""

    ranks: tuple[Ranks, ...] = Field(default=(8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096), min_length=1)
    """Numbers of devices to imagine."""

    gbps: tuple[Positive, ...] = Field(default=(1, 2.5, 5, 10, 25, 50, 100, 200, 400), min_length=1)
    """Bandwidths of a device's link to imagine, in Gbit/s."""

    latency_us: float = Field(default=20.0, ge=0)
    """Latency of a message without bytes, in microseconds."""

    message_us: float = Field(default=2.0, ge=0)
    """Processor time for one message, in microseconds."""

    all_to_all: float = Field(default=1.0, gt=0, le=1)
    """Share of the bandwidth that an all-to-all gets. It is below 1 if the network's core is
    narrower than its edge."""

    bound: Positive = 0.0015
    """Error bound of rows, relative to their range."""

    gradient_bound: Positive = 0.06
    """Error bound of gradients, relative to their root mean square."""

    forward_ratio: float | None = Field(default=None, ge=1)
    """Bytes of rows before coding over bytes sent, from a run's ledger. If it is left out, it is
    measured on normal rows."""

    backward_ratio: float | None = Field(default=None, ge=1)
    """Bytes of gradients before coding over bytes sent."""

    dense_ratio: float | None = Field(default=None, ge=1)
    """Bytes of dense gradients before coding over bytes sent."""

    codec_threads: Positive = 8.0
    """Number of a device's cores that encode and decode."""

    hot_gb: float = Field(default=1.0, ge=0)
    """Memory of a device for copies of hot rows, in 10^9 bytes."""

    sync_every: int = Field(default=1, ge=1)
    """Steps between two sums of hot rows' gradients; 1 is exact."""

    overlap: float = Field(default=0.0, ge=0, le=1)
    """Share of computation that hides transfers."""

    dense_overlap: float = Field(default=0.4, ge=0, le=1)
    """Share of computation that hides dense gradients: the backward pass without its first
    layers."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        for name in ("ranks", "gbps"):
            values = list(getattr(self, name))
            if sorted(set(values)) != values:
                raise ValueError(f"{name}: expected rising numbers, got {values}")
        return self


def model_of(scenario: Scenario, default_rows: Sequence[int]) -> ModelLoad:
    """Make the model; this measures codecs, which takes a second."""
    forward = measure_codec(scenario.dim, BoundedRows(scenario.bound, relative_to="range"))
    backward = measure_codec(
        scenario.dim, BoundedRows(scenario.gradient_bound, relative_to="rms", rounding="unbiased")
    )
    dense_ratio, dense_s_per_byte = measure_dense()
    rows_T = _scaled(scenario.rows or default_rows, scenario.total_rows)
    return ModelLoad(
        frequencies_T=tuple(
            Frequencies.zipf(rows, scenario.zipf, scenario.lookups_per_sample) for rows in rows_T
        ),
        dim=scenario.dim,
        samples=scenario.batch,
        compute_s=scenario.compute_ms / 1e3,
        dense_bytes=4.0 * scenario.dense_parameters,
        forward=_with_ratio(forward, scenario.dim, scenario.forward_ratio),
        backward=_with_ratio(backward, scenario.dim, scenario.backward_ratio),
        codec_threads=scenario.codec_threads,
        dense_ratio=scenario.dense_ratio or dense_ratio,
        dense_s_per_byte=dense_s_per_byte,
        hot_bytes=scenario.hot_gb * 1e9,
        sync_every=scenario.sync_every,
        overlap=scenario.overlap,
        dense_overlap=scenario.dense_overlap,
    )


def _scaled(rows_T: Sequence[int], total: int | None) -> list[int]:
    """Scale tables with a hundredth of all rows; others, such as countries, stay as they are."""
    if total is None:
        return list(rows_T)
    large = [rows >= sum(rows_T) / 100 for rows in rows_T]
    small = sum(rows for rows, is_large in zip(rows_T, large, strict=True) if not is_large)
    factor = (total - small) / (sum(rows_T) - small)
    if min(rows_T[t] * factor for t in range(len(rows_T)) if large[t]) < 1:
        raise ConfigError(
            f"total_rows: expected more than the {small} rows of small tables, which keep them, got {total}"
        )
    return [round(rows * factor) if is_large else rows for rows, is_large in zip(rows_T, large, strict=True)]


def _with_ratio(figures: CodecFigures, dim: int, ratio: float | None) -> CodecFigures:
    return figures if ratio is None else replace(figures, row_bytes=4.0 * dim / ratio)
