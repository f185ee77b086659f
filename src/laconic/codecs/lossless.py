"""Lossless: every bit of every value comes back, in fewer bytes than the values have.

A gradient or an embedding has 32 bits. No code makes its mantissa and sign smaller: they are noise.
The 8 bits of its exponent hold 2 to 4 bits of information. A value that is exactly zero needs only
a mark::

    form          what is sent                                        bits a value
    constant      the one value that all have                         0
    stored        the values                                          32
    full          sign and mantissa; entropy-coded exponents          24 + 2 ... 4
    sparse        which values are not zero, and those as in full     1 or less + share of full

Zero is +0.0, four bytes of 0; -0.0 is a value like any other. The normative text is in
``docs/formats/lossless.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from laconic.codecs.batch import BlockCodec
from laconic.kernels.blocks import BlockSpec, Kind

__all__ = ["Lossless"]


@dataclass(frozen=True, kw_only=True)
class Lossless(BlockCodec):
    """Exact, NaN payloads and -0.0 included; a block takes at most a byte more than its values.

    float16 and bfloat16 are widened first, which is exact too, and come back as float32.

    >>> x = torch.tensor([1.0, -0.0, float("inf")]).repeat(100)
    >>> block = laconic.Lossless().encode(x)
    >>> len(block) < 4 * len(x)
    True
    >>> laconic.Lossless().decode(block, (300,)).view(torch.int32).equal(x.view(torch.int32))
    True
    """

    __slots__ = ()

    wire_id: ClassVar[int] = 9

    def spec(self) -> BlockSpec:
        """Return what the kernels need to know."""
        return BlockSpec(Kind.LOSSLESS)
