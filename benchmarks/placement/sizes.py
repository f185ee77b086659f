"""The model that is trained, and on how much at a time."""

from __future__ import annotations

from laconic.train.settings import ModelSettings

__all__ = ["BATCH", "MODEL"]

BATCH = 1024
"""Samples of a rank in a step."""
MODEL = ModelSettings(dim=64, bottom=(512, 256), top=(512, 512, 256))
