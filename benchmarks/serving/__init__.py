"""Served models against other engines (``python -m benchmarks serve``), and under overload."""
