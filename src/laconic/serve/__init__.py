"""Serving: inference from artifacts, the Open Inference Protocol in front of it, and the watch beside it."""

from laconic.serve.engine import Engine

__all__ = ["Engine"]
