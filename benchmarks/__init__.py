"""The benchmarks: ``python -m benchmarks NAME`` from the root of a checkout; they are no part of the wheel.

================== ===========================================================
module             what it holds
================== ===========================================================
worker_pool worker ranks that do jobs, in the lab or on loopback; what one rank does and measures
timing             calls of one process, interleaved
data_sets          real data sets, how each is trained, and processes that train
results            how sure a ratio is, the machine, tables for people
================== ===========================================================

Everything else is a benchmark: a folder, whose ``benchmark.py`` measures and shows, or a file. Nothing is imported here,
so that ``--help`` answers at once.
"""
