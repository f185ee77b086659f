"""Benchmarks of sums over hosts."""
