"""The benchmarks: ``python -m benchmarks NAME`` from the root of a checkout; they are no part of the wheel.

================ =============================================================
module           what it holds
================ =============================================================
codecs           the codec benchmark: ``run_codec_benchmark``, ``render``
case             one matrix with its bound
contenders       who takes part in which case
dumps generated  where cases come from: files, and made here
ours peers       Laconic's codecs, other people's
ideal accuracy   what is possible, and what was kept
timing machine   how and where it was measured; ``meter`` shows progress
result table     what came out: as values, and for people
================ =============================================================

Nothing is imported here, so that ``--help`` answers at once.
"""
