"""Bounds by table and step, guard and economy: ``python -m benchmarks adapt``."""
