"""Inference from artefacts."""

from laconic.serve.engine import Engine

__all__ = ["Engine"]
