"""Lossless: every value comes back bit by bit, in fewer bytes where exponents repeat or values are zero.

Of the 32 bits of a gradient or an embedding, the mantissa and the sign are noise that no code makes smaller; the exponent
holds 2 to 4 bits instead of 8, and what is exactly zero needs no more than a mark::

    form          what is sent                                           bits a value
    constant      the one value that all have                            0
    stored        the values                                             32
    full          sign and mantissa; exponents, entropy-coded            24 + 2 ... 4
    sparse        which are not zero; the same of those that are not     1 or less + share x (24 + 2 ... 4)

Zero is +0.0, four bytes of 0; -0.0 is a value like any other. Normative text: ``docs/formats/lossless.md``.
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
    """

    __slots__ = ()

    wire_id: ClassVar[int] = 9

    def spec(self) -> BlockSpec:
        """Return what the kernels need to know."""
        return BlockSpec(Kind.LOSSLESS)
