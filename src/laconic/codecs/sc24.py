"""The SC'24 encoders, so that the paper can be reproduced and beaten in the same table.

``VectorLz`` is an LZ whose symbol is one whole row of codes; ``Huffman`` codes single values;
``Hybrid`` takes, per block, the one with the larger speed-up

    1 / (1/ratio + B (1/encode + 1/decode))       B = bandwidth, in the unit of the speeds

Quantizer and guarantee are those of ``BoundedRows`` (normative text: ``docs/formats/sc24.md``).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from laconic.codecs.batch import BlockCodec
from laconic.codecs.bounded_rows import RelativeTo, check_bound, check_window, relative_flag
from laconic.errors import ConfigError
from laconic.kernels.blocks import BlockSpec, Kind

__all__ = ["Huffman", "Hybrid", "VectorLz"]


@dataclass(frozen=True, slots=True)
class VectorLz(BlockCodec):
    """LZ over rows: a row is a literal, or a run of rows up to ``window`` rows back.

    >>> rows_RD = torch.tensor([[0.5, 1.5], [2.5, 3.5]]).repeat(100, 1)
    >>> codec = laconic.VectorLz(0.01)
    >>> block = codec.encode(rows_RD)
    >>> len(block) < 4 * rows_RD.numel() / 20
    True
    >>> bool((codec.decode(block, (200, 2)) - rows_RD).abs().max() <= 0.01)
    True
    """

    wire_id: ClassVar[int] = 3

    bound: float = 1e-2
    """Largest absolute error: in the unit of the data, or a share of what it is relative to."""

    _: KW_ONLY

    window: int = 32
    """How many rows back a match may start, 1..255; the paper uses 32."""

    relative_to: RelativeTo | None = None
    """What the bound is a share of: the "range" or the "rms" of the block, or None: absolute."""

    def __post_init__(self) -> None:
        check_bound(self.bound, "vector_lz")
        relative_flag(self.relative_to, "vector_lz")
        check_window(self.window, "vector_lz")

    def spec(self) -> BlockSpec:
        """Return what the kernels need to know."""
        flag = relative_flag(self.relative_to, "vector_lz")
        return BlockSpec(Kind.VECTOR_LZ, float(self.bound), flag, window=self.window)


@dataclass(frozen=True, slots=True)
class Huffman(BlockCodec):
    """Huffman over single codes, one book per block.

    >>> rows_RD = torch.arange(600.0).reshape(200, 3) % 7
    >>> codec = laconic.Huffman(0.1)
    >>> block = codec.encode(rows_RD)
    >>> len(block) < 4 * rows_RD.numel() / 5
    True
    >>> bool((codec.decode(block, (200, 3)) - rows_RD).abs().max() <= 0.1)
    True
    """

    wire_id: ClassVar[int] = 4

    bound: float = 1e-2
    """Largest absolute error: in the unit of the data, or a share of what it is relative to."""

    _: KW_ONLY

    relative_to: RelativeTo | None = None
    """What the bound is a share of: the "range" or the "rms" of the block, or None: absolute."""

    def __post_init__(self) -> None:
        check_bound(self.bound, "huffman")
        relative_flag(self.relative_to, "huffman")

    def spec(self) -> BlockSpec:
        """Return what the kernels need to know."""
        return BlockSpec(Kind.HUFFMAN, float(self.bound), relative_flag(self.relative_to, "huffman"))


@dataclass(frozen=True, slots=True)
class Hybrid(BlockCodec):
    """Vector LZ or Huffman, per block, by the paper's speed-up formula.

    The speeds are settings, not measurements made on the way: the same input gives the same
    bytes. The defaults were measured by ``laconic bench codecs`` on one x86-64 core.

    >>> rows_RD = torch.tensor([[0.5, 1.5], [2.5, 3.5]]).repeat(100, 1)  # rows repeat: LZ
    >>> hybrid = laconic.Hybrid(0.01, link_gbit_s=0.1)
    >>> torch.equal(hybrid.encode(rows_RD), laconic.VectorLz(0.01).encode(rows_RD))
    True
    """

    wire_id: ClassVar[int] = 5

    bound: float = 1e-2
    """Largest absolute error: in the unit of the data, or a share of what it is relative to."""

    _: KW_ONLY

    window: int = 32
    """How many rows back a match may start, 1..255."""

    relative_to: RelativeTo | None = None
    """What the bound is a share of: the "range" or the "rms" of the block, or None: absolute."""

    link_gbit_s: float = 1.0
    """Bandwidth of the network, in Gbit/s."""

    lz_gbyte_s: tuple[float, float] = (3.5, 14.0)
    """Encode and decode speed of vector LZ, in GB/s of float32."""

    huffman_gbyte_s: tuple[float, float] = (2.7, 3.9)
    """Encode and decode speed of Huffman, in GB/s of float32."""

    def __post_init__(self) -> None:
        check_bound(self.bound, "hybrid")
        relative_flag(self.relative_to, "hybrid")
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
            relative_flag(self.relative_to, "hybrid"),
            window=self.window,
            lz_penalty=self._penalty(self.lz_gbyte_s),
            huffman_penalty=self._penalty(self.huffman_gbyte_s),
        )

    def _penalty(self, gbyte_s: tuple[float, float]) -> float:
        encode, decode = gbyte_s
        return self.link_gbit_s / 8 * (1 / encode + 1 / decode)
