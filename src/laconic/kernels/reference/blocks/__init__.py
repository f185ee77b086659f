"""Blocks of every kind, and many of them in one call."""
