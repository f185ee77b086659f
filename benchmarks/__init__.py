"""The benchmarks: ``python -m benchmarks NAME`` from the root of a checkout, not in the wheel.

=========== ======================================================================================
module      content
=========== ======================================================================================
workers     a pool of ranks that do jobs, in the lab or on loopback, and one rank of it
timing      calls of one process, interleaved
data_sets   real data sets, how each is trained, and processes that train
results     confidence of ratios, the machine, tables for people
=========== ======================================================================================

Every other module is a benchmark: a file, or a folder whose ``benchmark.py`` measures and shows.
Nothing is imported here, so that ``--help`` answers at once.
"""
