"""Hashes that trained models depend on: they never change. They need no pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from laconic.data.mix64 import Words

__all__ = ["hash_texts"]


def hash_texts(texts: Sequence[bytes]) -> Words:
    """First 8 bytes (little-endian) of every BLAKE2b digest; integers are hashed by ``mix64``."""
    digests = b"".join([blake2b(text, digest_size=8).digest() for text in texts])
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
