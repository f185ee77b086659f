"""The SC'24 encoders, so that the paper can be reproduced and beaten in the same table.

``VectorLz`` is an LZ whose symbol is one whole row of codes; ``Huffman`` codes single values;
``Hybrid`` takes, per block, the one with the larger speed-up

    1 / (1/ratio + B (1/encode + 1/decode))       B = bandwidth, in the unit of the speeds

Quantizer and guarantee are those of ``BoundedRows`` (normative text: ``docs/formats/sc24.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from laconic.codecs.batch import BlockCodec
from laconic.codecs.bounded_rows import check_bound, check_window
from laconic.errors import ConfigError
from laconic.kernels.blocks import RELATIVE, BlockSpec, Kind

__all__ = ["Huffman", "Hybrid", "VectorLz"]


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorLz(BlockCodec):
    """LZ over rows: a row is a literal, or a run of rows up to ``window`` rows back."""

    wire_id: ClassVar[int] = 3

    bound: float = 1e-2
    """Largest absolute error allowed, in the unit of the data."""

    window: int = 32
    """How many rows back a match may start, 1..255; the paper uses 32."""

    relative: bool = False
    """The bound is a share of (max - min) of the block's finite values."""

    def __post_init__(self) -> None:
        check_bound(self.bound, "vector_lz")
        check_window(self.window, "vector_lz")

    def spec(self) -> BlockSpec:
        """Return what the kernels need to know."""
        return BlockSpec(
            Kind.VECTOR_LZ, float(self.bound), RELATIVE if self.relative else 0, window=self.window
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Huffman(BlockCodec):
    """Huffman over single codes, one book per block."""

    wire_id: ClassVar[int] = 4

    bound: float = 1e-2
    """Largest absolute error allowed, in the unit of the data."""

    relative: bool = False
    """The bound is a share of (max - min) of the block's finite values."""

    def __post_init__(self) -> None:
        check_bound(self.bound, "huffman")

    def spec(self) -> BlockSpec:
        """Return what the kernels need to know."""
        return BlockSpec(Kind.HUFFMAN, float(self.bound), RELATIVE if self.relative else 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hybrid(BlockCodec):
    """Vector LZ or Huffman, per block, by the paper's speed-up formula.

    The speeds are settings, not measurements made on the way: the same input gives the same
    bytes. The defaults were measured by ``laconic bench codecs`` on one x86-64 core.
    """

    wire_id: ClassVar[int] = 5

    bound: float = 1e-2
    """Largest absolute error allowed, in the unit of the data."""

    window: int = 32
    """How many rows back a match may start, 1..255."""

    relative: bool = False
    """The bound is a share of (max - min) of the block's finite values."""

    link_gbit_s: float = 1.0
    """Bandwidth of the network, in Gbit/s."""

    lz_gbyte_s: tuple[float, float] = (3.5, 14.0)
    """Encode and decode speed of vector LZ, in GB/s of float32."""

    huffman_gbyte_s: tuple[float, float] = (2.7, 3.9)
    """Encode and decode speed of Huffman, in GB/s of float32."""

    def __post_init__(self) -> None:
        check_bound(self.bound, "hybrid")
        check_window(self.window, "hybrid")
        for name in ("lz_gbyte_s", "huffman_gbyte_s"):
            speeds = getattr(self, name)
            if len(speeds) != 2 or not all(speed > 0 for speed in speeds):
                raise ConfigError(
                    f"hybrid.{name}: expected two positive speeds (encode, decode), got {speeds!r}"
                )
        if not self.link_gbit_s >= 0:
            raise ConfigError(
                f"hybrid.link_gbit_s: expected a bandwidth of at least 0, got {self.link_gbit_s!r}"
            )

    def spec(self) -> BlockSpec:
        """Return what the kernels need to know."""
        return BlockSpec(
            Kind.HYBRID,
            float(self.bound),
            RELATIVE if self.relative else 0,
            window=self.window,
            lz_penalty=self._penalty(self.lz_gbyte_s),
            huffman_penalty=self._penalty(self.huffman_gbyte_s),
        )

    def _penalty(self, gbyte_s: tuple[float, float]) -> float:
        encode, decode = gbyte_s
        return self.link_gbit_s / 8 * (1 / encode + 1 / decode)
