"""Codecs: frozen values that turn tensors into bytes and back; see each one's docstring."""

from laconic.codecs.batch import Batch, BlockCodec
from laconic.codecs.bounded_rows import Bounded, BoundedRows
from laconic.codecs.cast import Cast
from laconic.codecs.frame import Frame
from laconic.codecs.id_list import IdList
from laconic.codecs.lossless import Lossless
from laconic.codecs.sc24 import Huffman, Hybrid, VectorLz
from laconic.codecs.sketch import Sketch
from laconic.codecs.threshold import Threshold

__all__ = [
    "Batch",
    "BlockCodec",
    "Bounded",
    "BoundedRows",
    "Cast",
    "Frame",
    "Huffman",
    "Hybrid",
    "IdList",
    "Lossless",
    "Sketch",
    "Threshold",
    "VectorLz",
]
